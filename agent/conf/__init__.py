"""The options of the agent, one module a group. Options that nova has too keep nova's group, name
and unit.
"""
