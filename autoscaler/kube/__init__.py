"""The door to the Kubernetes API: client, credentials, watcher, cache, writes, leader election."""
