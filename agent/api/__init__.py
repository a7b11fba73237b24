"""The local API: HTTP and JSON on a Unix socket, described by openapi.yaml."""
