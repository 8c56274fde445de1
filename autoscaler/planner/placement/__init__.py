"""Pods onto nodes: the snapshot that placements are tried in, options and their cost, slots."""
