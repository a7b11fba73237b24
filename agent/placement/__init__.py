"""The side of the agent that talks to Placement: client, mirror, merge, plan, flush, allocation
operations, and a Placement server that runs inside the process.
"""
