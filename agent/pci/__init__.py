"""PCI devices for guests: what the operator offers, what a flavor requests, and which devices a
guest gets. Pure.
"""
