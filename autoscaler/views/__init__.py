"""What a person asks to see: GPUs, nodes, money, the acting policy, and why something is as it is."""
