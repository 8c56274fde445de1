"""Why a pod waits, a node stays or a group does not grow, and what would be done for pods that are not there yet."""
