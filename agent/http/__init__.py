"""HTTP sessions with limits, for the services that the agent talks to."""
