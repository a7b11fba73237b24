"""The API's resources, one module for each kind of object. Requests that arrive here are valid by
openapi.yaml.
"""
