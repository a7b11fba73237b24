"""The commands on the tracker's records."""
