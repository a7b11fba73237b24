"""What outlives the process: node identity, run lock, and the SQL records."""
