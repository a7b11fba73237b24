"""The conformance suite of drivers: one check for each promise of the driver interface."""
