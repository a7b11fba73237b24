"""NUMA: the topology that a guest requests, the cells of the host with their usage, and the fit of
the one on the other. Pure; no I/O.
"""
