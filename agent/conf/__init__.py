"""The options of the agent, one module for each group. Options that nova has too keep nova's group,
name and unit.
"""
