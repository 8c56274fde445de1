"""Processes that outlive a command: paths, the supervisor, the reaper."""
