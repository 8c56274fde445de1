"""Programs of the Horovod image."""
