"""What a machine is to be, as an inventory says it: settings, versions, where each line was written."""
