"""Nodes that go: idle ones, those that EC2 takes back, dead ones, and those whose pods have room elsewhere."""
