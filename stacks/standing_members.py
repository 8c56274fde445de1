"""What the members of a kubeadm control plane that stands have, and what of it can no longer be changed.

Asked of AWS before any resource is declared. A volume keeps the key and the zone that it was made with: another key
would mean other volumes, without etcd on them, and secrets that no member can read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import pulumi
import pulumi_aws as aws

from autoscaler import labels as words
from autoscaler.failures import BadInput, Unavailable
from stacks.control_plane_settings import KubeadmSettings

TAG_KEY: Final = f"{words.PREFIX}/key"
"""On a data volume: whether the stack made its KMS key, or the stack file names it."""
KeyFrom = Literal["stack", "file"]
_MOST: Final = 3
_HERE: Final = ("creating", "available", "in-use", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataVolume:
    """Of one member."""

    name: str
    """The member's."""
    key: str
    """ARN of its KMS key."""
    key_from: str
    """As its tag says; empty without one."""
    gib: int


def key_from(settings: KubeadmSettings) -> KeyFrom:
    """What the tag says of a volume that is made now."""
    return "file" if settings.key else "stack"


def member_name(cluster: str, number: int) -> str:
    """Of the instance, the volume and the interface of a member; as the ``Name`` tag too."""
    return f"{cluster}-control-plane-{number}"


def data_volumes(cluster: str, *, provider: aws.Provider) -> list[DataVolume]:
    """Those of the cluster that stand, in the order of their members; asked of AWS. Raises ``Unavailable``."""
    opts = pulumi.InvokeOptions(provider=provider)
    wanted = {
        f"tag:{words.TAG_CLUSTER}": [cluster],
        "tag:Name": [member_name(cluster, number) for number in range(_MOST)],
        "status": list(_HERE),
    }
    filters = [aws.ebs.GetEbsVolumesFilterArgs(name=name, values=values) for name, values in wanted.items()]
    try:
        ids = aws.ebs.get_ebs_volumes(filters=filters, opts=opts).ids
        found = [_look_up(one, opts) for one in ids]
    except Exception as error:  # noqa: BLE001 - a failed look-up has no type of its own
        raise Unavailable(f"EC2 does not tell which volumes of the control plane stand: {error}") from None
    return sorted(found, key=lambda one: one.name)


def check_standing(settings: KubeadmSettings, volumes: list[DataVolume]) -> None:
    """Whether the members that stand can become what the stack file says. Raises ``BadInput`` with every mistake."""
    wrong = [mistake for volume in volumes for mistake in _mistakes(settings, volume)]
    if wrong:
        raise BadInput("\n".join(wrong))


def tell_fewer(settings: KubeadmSettings, volumes: list[DataVolume]) -> list[str]:
    """A line where members are taken away: etcd counts those as lost that did not leave it."""
    leaving = " and ".join(one.name for one in reversed(volumes[settings.instances :]))
    line = (
        f"spillway:control_plane.instances = {settings.instances}, and {len(volumes)} members stand: run "
        f"`kubeadm reset` on {leaving} first, one after the other, else etcd has lost its majority"
    )
    return [line] if leaving else []


def _look_up(key: str, opts: pulumi.InvokeOptions) -> DataVolume:
    by_id = [aws.ebs.GetVolumeFilterArgs(name="volume-id", values=[key])]
    found = aws.ebs.get_volume(filters=by_id, opts=opts)
    return DataVolume(
        name=found.tags.get("Name", ""), key=found.kms_key_id, key_from=found.tags.get(TAG_KEY, ""), gib=found.size
    )


def _mistakes(settings: KubeadmSettings, volume: DataVolume) -> list[str]:
    wrong = []
    given, where = settings.key, "spillway:control_plane"
    if given and given != volume.key:
        back = "take it out again" if volume.key_from == "stack" else f"write key: {volume.key}"
        wrong.append(f"{where}.key = {given!r}: {_held(volume)}: {back}")
    if not given and volume.key_from == "file":
        wrong.append(f"{where}.key is gone: {_held(volume)}: write key: {volume.key}")
    if settings.data_volume_gib < volume.gib:
        wrong.append(
            f"{where}.data_volume_gib = {settings.data_volume_gib}: the data volume of {volume.name} has {volume.gib} "
            f"GiB, and no volume of EC2 shrinks: write {volume.gib} or more"
        )
    return wrong


def _held(volume: DataVolume) -> str:
    return (
        f"the data volume of {volume.name} stands under {volume.key}, and a volume keeps its key; with another one "
        "etcd would begin anew on an empty volume"
    )
