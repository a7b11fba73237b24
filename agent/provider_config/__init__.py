"""Provider config files of the operator: custom inventories and traits for providers that the agent
manages.
"""
