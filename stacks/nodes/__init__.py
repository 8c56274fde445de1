"""Node groups and their machines: instance types, images, user data, how a node joins."""
