"""Frozen data of the domain: provider tree, inventories, host facts, devices, records, reports. No
I/O, no configuration.
"""
