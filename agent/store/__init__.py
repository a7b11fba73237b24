"""The state that outlives the process: node identity, run lock, and the SQL database."""
