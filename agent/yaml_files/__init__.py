"""YAML files that people write: plain data with the place of every value, and what a JSON Schema
says of it in words.
"""
