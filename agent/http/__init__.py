"""HTTP sessions for the services that the agent talks to, with bounds."""
