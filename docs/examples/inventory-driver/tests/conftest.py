"""Loads the checks of all promises of a driver."""

pytest_plugins = ["agent.conformance.pytest_plugin"]
