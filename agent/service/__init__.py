"""The daemon: its loop, signals, systemd, and what it shows to the local API."""
