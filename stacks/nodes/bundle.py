"""The bundle of the roles, where instances fetch it: a bucket of its own, private and encrypted, with one object.

``spillway nodes bundle`` writes the file; the stack keeps it under its digest, so that another one is another object,
and an instance that boots by an older launch template is told the digest of what it must find.
"""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pulumi
import pulumi_aws as aws

from autoscaler.model.errors import BadInput
from stacks.aws.buckets import close_to_the_public
from stacks.nodes.user_data import Bundle

_MACHINES = {"x86_64": "x86_64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleFile:
    """A bundle on this machine."""

    path: Path
    sha256: str
    python: str
    """The version that it was made for, e.g. ``3.12``."""
    architecture: str
    """Of its compiled parts, as EC2 spells it."""


class NodeBundle(pulumi.ComponentResource):
    """The file in S3."""

    bundle: pulumi.Output[Bundle]
    object_arn: pulumi.Output[str]

    def __init__(self, name: str, file: BundleFile, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("spillway:nodes:NodeBundle", f"{name}-node-bundle", None, opts)
        own, child = f"{name}-node-bundle", pulumi.ResourceOptions(parent=self)
        store = aws.s3.Bucket(own, force_destroy=True, opts=child)
        aws.s3.BucketServerSideEncryptionConfiguration(
            own,
            bucket=store.bucket,
            rules=[{"apply_server_side_encryption_by_default": {"sse_algorithm": "AES256"}}],
            opts=child,
        )
        close_to_the_public(store, name=own, parent=self)
        kept = aws.s3.BucketObjectv2(
            own,
            bucket=store.bucket,
            key=f"{file.sha256}.tar.gz",
            source=pulumi.FileAsset(str(file.path)),
            content_type="application/gzip",
            opts=child,
        )
        self.bundle = pulumi.Output.all(store.bucket_regional_domain_name, kept.key).apply(
            lambda known: Bundle(url=f"https://{known[0]}/{known[1]}", sha256=file.sha256)
        )
        self.object_arn = pulumi.Output.concat(store.arn, "/", kept.key)
        self.register_outputs({"object": kept.key})


def read_bundle(path: Path) -> BundleFile:
    """What a bundle is, by its first file. Raises ``BadInput``."""
    try:
        with path.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        with tarfile.open(path, "r:gz") as archive:
            first = archive.next()
            said = archive.extractfile(first) if first and first.name == "PYTHON" else None
            words = said.read().decode().split() if said else []
    except OSError as error:
        raise BadInput(
            f"spillway:nodes.bundle = {str(path)!r}: cannot be read: {error.strerror or 'it is no archive'}: "
            "`spillway nodes bundle` writes one"
        ) from None
    except (tarfile.TarError, EOFError, UnicodeDecodeError):
        words = []
    if len(words) != 2:  # noqa: PLR2004 - version and machine
        raise BadInput(f"spillway:nodes.bundle = {str(path)!r}: is not a bundle: `spillway nodes bundle` writes one")
    python, machine = words
    return BundleFile(path=path, sha256=digest, python=python, architecture=_MACHINES.get(machine, machine))


def check_architecture(file: BundleFile, architectures: Mapping[str, str]) -> None:
    """Compiled parts run on what they were made for alone; by instance type. Raises ``BadInput``."""
    wrong = [f"{name} is {other}" for name, other in sorted(architectures.items()) if other != file.architecture]
    if wrong:
        raise BadInput(
            f"spillway:nodes.bundle = {str(file.path)!r}: was made for {file.architecture}, and {', '.join(wrong)}: "
            "make it on a machine of that kind, or give those groups a stack of their own"
        )
