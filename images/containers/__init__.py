"""Container images, one folder each."""
