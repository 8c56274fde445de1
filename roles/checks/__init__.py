"""What is checked before a machine is changed: versions, preflight findings, exclusions."""
