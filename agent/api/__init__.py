"""The local API: HTTP and JSON on a Unix socket, described by openapi.yaml. It uses the agent only
through the Protocol :class:`agent.api.service.Service`.
"""
