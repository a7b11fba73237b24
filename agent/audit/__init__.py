"""Audits of nodes: observe, shape, plan, flush."""
