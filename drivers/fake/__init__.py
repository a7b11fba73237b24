"""Hosts that do not exist, for tests, demos and CI: from a catalogue, from a YAML file, or with
random disturbances.
"""
