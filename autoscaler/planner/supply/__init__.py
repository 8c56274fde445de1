"""What pods can run on: nodes that are there, nodes on their way, what can be bought."""
