"""Access entries of an EKS cluster that others made: told on every preview, since the plugin has no type that owns all.

Whatever has such an entry comes into the cluster, with the rights of its access policies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from autoscaler.model.errors import Unavailable
from stacks.aws.boundary import path_of


def look_up_entries(cluster: str, *, region: str) -> tuple[str, ...]:
    """ARNs of all that come in. Asked of EKS itself: the plugin looks up one whose ARN is known. ``Unavailable``."""
    import boto3  # noqa: PLC0415 - slow to import
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    eks: Any = boto3.session.Session(region_name=region).client("eks")  # by the same environment as the plugin
    try:
        pages = eks.get_paginator("list_access_entries").paginate(clusterName=cluster)
        return tuple(one for page in pages for one in page["accessEntries"])
    except (BotoCoreError, ClientError) as error:
        raise Unavailable(f"EKS does not tell the access entries of the cluster {cluster}: {error}") from None


def tell_foreign_entries(entries: Iterable[str], *, cluster: str, admins: Collection[str]) -> list[str]:
    """One line for each that is neither an administrator of the stack file, nor a role of the stack, nor AWS's own."""
    return [
        f"{arn} has an access entry of the EKS cluster {cluster} that this stack has not made: name it in "
        "spillway:control_plane.admins, or take it away (aws eks delete-access-entry "
        f"--cluster-name {cluster} --principal-arn {arn})"
        for arn in sorted(entries)
        if arn not in admins and f":role{path_of(cluster)}" not in arn and ":role/aws-service-role/" not in arn
    ]
