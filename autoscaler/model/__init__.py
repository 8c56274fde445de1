"""The values that planning is about: clusters, pods, resources, constraints, labels, actions, errors. No I/O."""
