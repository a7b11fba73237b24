"""The API's JSON documents about records: what is asked, as the tracker takes it, and what is kept,
as it is shown.
"""
