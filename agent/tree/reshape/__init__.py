"""Reshapes: which allocations move when the tree counts resources on another provider or in another
class than before.
"""
