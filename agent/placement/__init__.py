"""All that talks to Placement: client, mirror, plan, flush, and the server that can run inside the
process.
"""
