"""How a machine becomes a member of the cluster: bootstrap tokens, certificates and their approval."""
