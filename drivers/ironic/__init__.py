"""Bare metal: the nodes of an ironic, each a root of its own that is rented out whole."""

from drivers.ironic.driver import IronicDriver

__all__ = ["IronicDriver"]
