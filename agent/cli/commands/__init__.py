"""The commands other than the audit and the daemon."""
