"""What stands in a pod's way, all of it: rules and limits are left out of the question one by one, and asked again."""
