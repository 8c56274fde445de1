"""Stand-ins for NVIDIA's packages: the same names, files, units and version rules, and no code that drives a GPU."""
