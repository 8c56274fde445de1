"""Questions to the acting replica, and its answers over HTTP."""
