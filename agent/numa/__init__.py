"""Fitting guests to NUMA cells: what a guest asks for, what a host has left, which cells and CPUs
it gets. Pure; no I/O.
"""
