"""The operator's provider files: custom inventories and traits for providers that the agent
manages.
"""
