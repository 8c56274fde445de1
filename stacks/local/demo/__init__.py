"""The demo: one job after the other, watched, and its claims checked."""
