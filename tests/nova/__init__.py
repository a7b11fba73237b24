"""nova's own functional tests, with the engine in place of nova's report to Placement."""
