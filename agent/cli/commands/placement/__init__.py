"""The commands of operators who work on Placement itself."""
