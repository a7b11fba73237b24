"""Monitors: plug-ins that measure the host, and the built-in ones."""
