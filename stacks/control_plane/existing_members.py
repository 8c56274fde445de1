"""What the members of a kubeadm control plane that stands have, and what of it can no longer be changed.

Asked of AWS before any resource is declared. A volume keeps the key and the zone that it was made with: another key
would mean other volumes, without etcd on them, and secrets that no member can read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import pulumi
import pulumi_aws as aws

from autoscaler.model import labels as words
from autoscaler.model.errors import BadInput, Unavailable
from stacks.control_plane.member_user_data import NOT_YET, Parameters
from stacks.nodes.join import join_parameter
from stacks.settings.control_plane import KubeadmSettings

TAG_KEY: Final = f"{words.PREFIX}/key"
"""On a data volume: whether the stack made its KMS key, or the stack file names it."""
KeyFrom = Literal["stack", "file"]
MOST_MEMBERS: Final = 3
_HERE: Final = ("creating", "available", "in-use", "error")
_NO_PARAMETER: Final = ("ParameterNotFound", "couldn't find resource", "not found")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataVolume:
    """The volume that holds one member's data."""

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
    """Returns the ``Name`` of a member's instance, volume and interface."""
    return f"{cluster}-control-plane-{number}"


def parameters_of(cluster: str) -> Parameters:
    """Where the members of a cluster keep what joins others, and what they tell of themselves."""
    own = f"/spillway/{cluster}/control-plane"
    return Parameters(
        token=join_parameter(cluster),
        certificate_key=f"{own}/certificate-key",
        kubeconfig=f"{own}/kubeconfig",
        version=f"{own}/version",
    )


def data_volumes(cluster: str, *, provider: aws.Provider) -> list[DataVolume]:
    """Those of the cluster that stand, in the order of their members; asked of AWS. Raises ``Unavailable``."""
    opts = pulumi.InvokeOptions(provider=provider)
    wanted = {
        f"tag:{words.TAG_CLUSTER}": [cluster],
        "tag:Name": [member_name(cluster, number) for number in range(MOST_MEMBERS)],
        "status": list(_HERE),
    }
    filters = [aws.ebs.GetEbsVolumesFilterArgs(name=name, values=values) for name, values in wanted.items()]
    try:
        ids = aws.ebs.get_ebs_volumes(filters=filters, opts=opts).ids
        found = [_look_up(one, opts) for one in ids]
    except Exception as error:  # noqa: BLE001 - a failed look-up has no type of its own
        raise Unavailable(f"EC2 does not tell which volumes of the control plane stand: {error}") from None
    return sorted(found, key=lambda one: one.name)


def version_told(cluster: str, *, provider: aws.Provider) -> str | None:
    """What its API servers run, the oldest of them, as a member has told; ``None`` where none has yet."""
    try:
        opts = pulumi.InvokeOptions(provider=provider)
        told = aws.ssm.get_parameter(name=parameters_of(cluster).version, with_decryption=True, opts=opts).value
    except Exception as error:  # noqa: BLE001 - as above
        if any(said in str(error) for said in _NO_PARAMETER):
            return None
        raise Unavailable(f"Parameter Store does not tell which version the control plane runs: {error}") from None
    return None if told == NOT_YET else told


def check_standing(settings: KubeadmSettings, volumes: list[DataVolume], *, running: str | None) -> None:
    """Whether the members that stand can become what the stack file says. Raises ``BadInput`` with every mistake.

    ``running`` is the version of their API servers.
    """
    wrong = [mistake for volume in volumes for mistake in _mistakes(settings, volume)]
    wrong += _too_few(settings, [one.name for one in volumes])
    if running and volumes:
        wrong += _of_version(settings.version, running, [one.name for one in volumes])
    if wrong:
        raise BadInput("\n".join(wrong))


def _look_up(key: str, opts: pulumi.InvokeOptions) -> DataVolume:
    by_id = [aws.ebs.GetVolumeFilterArgs(name="volume-id", values=[key])]
    found = aws.ebs.get_volume(filters=by_id, opts=opts)
    return DataVolume(
        name=found.tags.get("Name", ""), key=found.kms_key_id, key_from=found.tags.get(TAG_KEY, ""), gib=found.size
    )


def _too_few(settings: KubeadmSettings, standing: list[str]) -> Iterator[str]:
    """Members that would go without having left etcd, which counts them as lost from then on."""
    key, kept, leaving = "spillway:control_plane", standing[: settings.instances], standing[settings.instances :]
    lost = [name for name in reversed(leaving) if name not in settings.reset]
    if lost:
        yield (
            f"{key}.instances = {settings.instances}, and {len(standing)} members stand: etcd would lose its majority, "
            f"and the cluster with it: run `kubeadm reset` on {' and then on '.join(lost)}, which takes them out of "
            f"etcd, and say so by reset: [{', '.join(leaving)}]; or write instances: {len(standing)}"
        )
    for name in settings.reset:
        if name in kept:
            yield f"{key}.reset names {name}, which is to stay: take it out, or lower instances"


def _of_version(wanted: str, running: str, members: list[str]) -> Iterator[str]:
    """`pulumi up` upgrades nothing by itself: it would bring kubelets that are newer than their API servers."""
    said = f"spillway:control_plane.version = {wanted!r}, and the API servers run {running}"
    new, now = _numbers(wanted), _numbers(running)
    if new < now:
        yield f"{said}: Kubernetes does not go back: write version: {running}"
    elif new[1] > now[1] + 1:
        yield f"{said}: Kubernetes goes up one minor version at a time: 1.{now[1] + 1} is next"
    elif new > now:
        others = f", `kubeadm upgrade node` on {' and '.join(members[1:])}" if members[1:] else ""
        yield (
            f"{said}: upgrade them first: `kubeadm upgrade apply v{wanted}` on {members[0]}{others}, then "
            "`systemctl start spillway-renew-token`, which tells of it (stacks/README.md, A new version of Kubernetes)"
        )


def _numbers(version: str) -> list[int]:
    return [int(one) for one in version.split(".")]


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
