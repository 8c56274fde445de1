"""The parts of a node, one deploy each: packages' sources, container runtime, kubelet, logs, users."""
