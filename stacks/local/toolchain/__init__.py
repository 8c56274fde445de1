"""The virtual environment, the Go tools and the Pulumi engine: made once, kept in the cache."""
