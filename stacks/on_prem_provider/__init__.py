"""A provider for Pulumi: machines that you own, and keys, as resources. The engine runs it as a plugin of its own.

    spillway-onprem:index:Machine        a machine of the inventory: probed, registered, drained, unregistered
    spillway-onprem:index:WireguardKey   a pair of keys for one end of a WireGuard tunnel
    spillway-onprem:index:PresharedKey   a key that both ends of a VPN tunnel know

The resources as a program writes them are in ``stacks/nodes/on_prem_machines.py``.
"""
