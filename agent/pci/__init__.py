"""PCI devices for guests: what the operator offers, what a flavor asks for, and what Placement is
told of it. Pure.
"""
