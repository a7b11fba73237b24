"""Frozen data of the domain: provider tree, inventories, host facts, devices, reports. No I/O, no
configuration.
"""
