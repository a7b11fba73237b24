"""The tracker: what is promised on each node, and every change of it."""
