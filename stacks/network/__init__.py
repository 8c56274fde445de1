"""The network: a VPC made or found, its addresses, endpoints and flow logs."""
