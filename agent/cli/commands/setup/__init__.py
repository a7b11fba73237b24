"""``agent setup``: puts the files that the package ships in their places on a host, and takes them
away again.
"""
