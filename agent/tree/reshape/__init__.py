"""What of the allocations moves when the tree counts things at another place or in another class
than before.
"""
