"""``agent completion``: scripts by which shells complete the command line of the agent."""
