"""What a stack is configured with and what it exports: settings, inventory, outputs."""
