"""A small client of the local API server, and node objects."""
