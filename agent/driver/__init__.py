"""The driver interface, and the worker that calls drivers."""
