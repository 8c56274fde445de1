"""What is sent to instances, to be run there."""
