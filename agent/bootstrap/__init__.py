"""Builds, starts and closes what a process needs: components, store, driver, fleet."""
