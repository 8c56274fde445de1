"""What EKS offers of what a stack file names: a version of Kubernetes, and add-ons for it.

Asked before any resource is declared. A cluster that stands narrows it: EKS neither goes back, nor skips a version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pulumi
import pulumi_aws as aws

from autoscaler.model.errors import BadInput, Unavailable
from stacks.settings.control_plane import EksSettings

_ABSENT: Final = ("couldn't find resource", "empty result", "ResourceNotFoundException")
_ENDED: Final = "UNSUPPORTED"
_KEY: Final = "spillway:control_plane"
_TOLD: Final = 5
"""Versions of an add-on: EKS has dozens of some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """What EKS offers to one stack file."""

    versions: Mapping[str, str]
    """Of Kubernetes: empty while EKS supports one, else the day on which that has ended."""
    running: str | None = None
    """What the cluster runs, where it stands."""
    zones: tuple[str, ...] = ()
    """Those that the cluster was made over: EKS takes no more of them, and lets go of none."""
    add_ons_for: str
    """The version whose add-ons these are: the one that is wanted or, where there cannot be that one, another."""
    add_ons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Versions of each that EKS will be asked for, none where it does not know it; not of those that stand already."""


def look_up_offered(settings: EksSettings, cluster: str, *, region: str, provider: aws.Provider) -> Offered:
    """Asks EKS which versions it offers. Raises ``Unavailable``."""
    opts, wanted = pulumi.InvokeOptions(provider=provider), settings.version
    try:
        running, zones = look_up_cluster(cluster, opts)
        versions = {} if running == wanted else _versions(opts)
        no_such = any(_of_version(wanted, running=running, versions=versions))
        add_ons_for = running or _newest(versions, wanted) if no_such else wanted
        add_ons: dict[str, tuple[str, ...]] = {}
        for name, pinned in settings.addons.items():
            if not (running and _stands(name, pinned, cluster, opts)):
                asked = pinned if add_ons_for == wanted else ""
                add_ons[name] = _versions_of(name, asked, version=add_ons_for, region=region, opts=opts)
    except Exception as error:  # noqa: BLE001 - a failed look-up has no type of its own
        raise Unavailable(f"EKS does not tell what it offers for the cluster {cluster}: {error}") from None
    return Offered(versions=versions, running=running, zones=zones, add_ons_for=add_ons_for, add_ons=add_ons)


def look_up_cluster(cluster: str, opts: pulumi.InvokeOptions) -> tuple[str | None, tuple[str, ...]]:
    """Version and zones of the one that stands."""
    if cluster not in aws.eks.get_clusters(opts=opts).names:
        return None, ()
    found = aws.eks.get_cluster(name=cluster, opts=opts)
    subnets = [aws.ec2.get_subnet(id=one, opts=opts) for one in found.vpc_config.subnet_ids]
    return found.version, tuple(sorted({one.availability_zone for one in subnets}))


def check_offered(settings: EksSettings, offered: Offered) -> None:
    """Whether EKS has what the stack file names. Raises ``BadInput`` with every mistake."""
    of_version = _of_version(settings.version, running=offered.running, versions=offered.versions)
    wrong = [*of_version, *_of_add_ons(settings, offered)]
    if wrong:
        raise BadInput("\n".join(wrong))


def _of_version(wanted: str, *, running: str | None, versions: Mapping[str, str]) -> Iterator[str]:
    said = f"{_KEY}.version = {wanted!r}"
    if wanted == running:  # also where EKS has ended with it: nothing is asked for
        return
    if running and _minor(wanted) < _minor(running):
        yield f'{said}, and the cluster runs {running}: EKS does not go back: write version: "{running}"'
    elif running and _minor(wanted) > _minor(running) + 1:
        following = f"1.{_minor(running) + 1}"
        yield f"{said}, and the cluster runs {running}: EKS goes up one minor version at a time: {following} is next"
    elif versions.get(wanted) != "":
        ends = versions.get(wanted)
        why = f"EKS's support of it has ended on {ends}" if ends else "EKS does not offer it"
        there = ", ".join(f'"{one}"' for one in _supported(versions))
        yield f'{said}: {why}: write version: "{running}"' if running else f"{said}: {why}: take one of {there}"


def _of_add_ons(settings: EksSettings, offered: Offered) -> Iterator[str]:
    version = offered.add_ons_for
    listing = f"aws eks describe-addon-versions --kubernetes-version {version}"
    for name, pinned in sorted(settings.addons.items()):
        there = offered.add_ons.get(name)
        if there is not None and not there:
            yield (
                f"{_KEY}.addons names {name!r}, and EKS has no such add-on for Kubernetes {version}: "
                f"`{listing} --query addons[].addonName` lists those that there are"
            )
        elif there and pinned and pinned not in there and version == settings.version:
            yield (
                f"{_KEY}.addons.{name} = {pinned!r}: EKS does not offer it for Kubernetes {version}: leave it empty, "
                f"or take one of those that `{listing} --addon-name {name}` lists, e.g. {', '.join(there[:_TOLD])}"
            )


def _versions(opts: pulumi.InvokeOptions) -> dict[str, str]:
    found = aws.eks.get_cluster_versions(include_all=True, opts=opts).cluster_versions
    return {one.cluster_version: _day(one) if one.version_status == _ENDED else "" for one in found}


def _day(version: aws.eks.outputs.GetClusterVersionsClusterVersionResult) -> str:
    return (version.end_of_extended_support_date or "")[:10] or "a day that it does not tell"


def _stands(name: str, pinned: str, cluster: str, opts: pulumi.InvokeOptions) -> bool:
    """Whether the cluster has the add-on as it is wanted, so that EKS is asked for nothing."""
    try:
        found = aws.eks.get_addon(addon_name=name, cluster_name=cluster, opts=opts).addon_version
    except Exception as error:
        if any(said in str(error) for said in _ABSENT):
            return False
        raise
    return pinned in ("", found)


def _versions_of(name: str, pinned: str, *, version: str, region: str, opts: pulumi.InvokeOptions) -> tuple[str, ...]:
    """The newest, which is enough where that one is wanted, or any; else all."""
    try:
        newest = aws.eks.get_addon_version(
            addon_name=name, kubernetes_version=version, most_recent=True, opts=opts
        ).version
    except Exception as error:
        if any(said in str(error) for said in _ABSENT):
            return ()
        raise
    return (newest,) if pinned in ("", newest) else _all_versions_of(name, version=version, region=region)


def _all_versions_of(name: str, *, version: str, region: str) -> tuple[str, ...]:
    """Asked of EKS itself: the plugin's look-up tells of the newest and of the default one alone."""
    import boto3  # noqa: PLC0415 - slow to import

    eks: Any = boto3.session.Session(region_name=region).client("eks")  # by the same environment as the plugin
    pages = eks.get_paginator("describe_addon_versions").paginate(addonName=name, kubernetesVersion=version)
    return tuple(one["addonVersion"] for page in pages for add_on in page["addons"] for one in add_on["addonVersions"])


def _supported(versions: Mapping[str, str]) -> list[str]:
    return sorted((one for one, ends in versions.items() if not ends), key=_minor)


def _newest(versions: Mapping[str, str], otherwise: str) -> str:
    return next(reversed(_supported(versions)), otherwise)


def _minor(version: str) -> int:
    return int(version.split(".")[1])
