"""The desired tree: what Placement should hold, built from the facts, the operator's policy and the
driver's own shape.
"""
