"""Explanation of whether and why a guest fits a node: the scheduler's query, the constraints that
exclude it, the host's own answer, and what would make it fit. No I/O.
"""
