"""Tracker: the claims on each node, and every operation that changes them."""
