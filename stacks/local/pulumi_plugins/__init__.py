"""Stand-ins for plugins of Pulumi that are downloads elsewhere."""
