"""The API's JSON documents: of requests, converted to the tracker's own; of records, as the API
shows them.
"""
