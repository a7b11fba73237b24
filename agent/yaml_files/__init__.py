"""Reading YAML files that people write: plain data with the position of every value, and readable
errors of a JSON Schema.
"""
