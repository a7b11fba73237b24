"""Drivers that ship with compute-node-agent; each is found by its entry point, never imported by
``agent``.
"""
