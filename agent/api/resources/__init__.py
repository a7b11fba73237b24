"""What can be asked for, one module a noun. Requests come here only as openapi.yaml
describes them.
"""
