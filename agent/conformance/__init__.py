"""Whether a driver keeps the promises of the driver interface: one check for each promise."""
