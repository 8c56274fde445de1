"""Threads beside the loop that follow interruption notices and the real use of GPUs."""
