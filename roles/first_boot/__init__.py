"""An instance that prepares itself at its first boot, and the bundle that it does so with."""
