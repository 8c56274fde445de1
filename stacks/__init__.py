"""The ground. Pulumi programs that make the network, the control plane, the groups of nodes."""
