"""What an inventory says of instances: the fleet's settings as far as they hold for them, and their own."""

from __future__ import annotations

from typing import Any, Final

from autoscaler.config.documents import parse_data
from roles.checks.versions import machine_mistakes
from roles.deploys.apt_sources import checked_key, read_sources
from roles.settings.machine import MachineSettings, merged
from roles.settings.source_lines import Written
from roles.settings.version_matrix import refuse
from stacks.settings.inventory import Inventory

NOBODY: Final = """\
-----BEGIN CERTIFICATE-----
MIIBeTCCAR+gAwIBAgIUCFdiH14bVXqrfDSCuuRLP4cVDJgwCgYIKoZIzj0EAwIw
ETEPMA0GA1UEAwwGbm9ib2R5MCAXDTI2MTEyMjExNTAzMFoYDzIxMjYxMDI5MTE1
MDMwWjARMQ8wDQYDVQQDDAZub2JvZHkwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AASnS3jLK6MgisMtPfBWZ0hcrbKhBRlOSq/V4dOQLN+Jvim/TVVOWBthDDgcSEpf
O+YO9xleO/go9Npi2Rxp23NUo1MwUTAdBgNVHQ4EFgQUOdoAydsLMzgAle0D61A3
2KQIjwEwHwYDVR0jBBgwFoAUOdoAydsLMzgAle0D61A32KQIjwEwDwYDVR0TAQH/
BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiBNb2n5DqFBONvLaxAAPzuZCU/4V9QX
7HMD4Qc/JdXNPgIhAMcLz2cJu1Rx647sAeFmy3GJYl6hsoY9naxJV2PWhxzW
-----END CERTIFICATE-----
"""
"""Of an authority whose key is thrown away: in place of the cluster's, which the stack tells an instance."""


def instance_settings(inventory: Inventory, *, source: str, written: Written) -> dict[str, Any]:
    """How the fleet's machines are set up, as far as it holds for instances too, and what is said of these alone.

    Raises ``BadInput`` for what would be refused at boot, where no person reads it.
    """
    fleet = {key: value for key, value in inventory.settings.items() if key != "kubeconfig"}
    kubelet = {key: value for key, value in (fleet.get("kubelet") or {}).items() if key not in ("server", "authority")}
    chosen = merged(fleet | ({"kubelet": kubelet} if kubelet else {}), inventory.ec2_settings)
    stack = {"kubelet": {"server": "https://cluster", "authority": NOBODY}}
    own = {"name": "instance", "address": "10.0.0.1"}
    machine = parse_data(
        merged(chosen, stack, own),
        MachineSettings,
        source=source,
        entry="ec2_settings over settings",
        written=lambda: written.settings(layer="ec2_settings"),
    )
    refuse(machine_mistakes(machine))
    return with_keys(chosen, source=source)


def with_keys(settings: dict[str, Any], *, source: str) -> dict[str, Any]:
    """The settings with the texts of the repositories' keys in place of the controller's paths: no instance has those.

    Raises ``BadInput`` where one is not the key that its fingerprints name.
    """
    given = (settings.get("sources") or {}).get("repositories") or {}
    paths = [name for name, one in given.items() if one and one.get("key") and "://" not in one["key"]]
    if not paths:
        return settings
    known = read_sources(settings["sources"], source=source, entry="settings: sources").repositories
    keys = {name: {"key": checked_key(name, known[name])} for name in paths}
    return merged(settings, {"sources": {"repositories": keys}})
