"""The commands beside audit and daemon, one module each."""
