"""The commands about what is promised to guests, one module a noun."""
