"""The way between the premises and the VPC: VPN, WireGuard, routes."""
