"""The local API: HTTP and JSON on a Unix socket, described by openapi.yaml. It knows the agent only
as a Service.
"""
