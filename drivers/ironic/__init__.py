"""Bare metal: the nodes of an ironic; each is a root provider of its own, used by one consumer at a
time.
"""

from drivers.ironic.driver import IronicDriver

__all__ = ["IronicDriver"]
