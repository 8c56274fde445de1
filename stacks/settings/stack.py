"""A stack's configuration, typed: what stands under ``config:`` in ``stacks/config/Pulumi.<stack>.yaml``.

Every mistake is told with its key (``spillway:network.nat``) before any resource is touched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from autoscaler.config.documents import Document, Span, parse_data
from autoscaler.config.image_names import ImageName
from autoscaler.config.release_manifests import AwsAccess
from autoscaler.model import labels as words
from autoscaler.model.errors import BadInput
from stacks.project import project_folder
from stacks.settings.control_plane import ControlPlaneSettings, ExistingSettings
from stacks.settings.network import NetworkSettings
from stacks.settings.on_prem import ConnectivitySettings, MachineSettings

PROJECT: Final = "spillway"
_TAG_KEY: Final = re.compile(r"[\w .:/=+@-]{1,128}")
_TAG_VALUE: Final = re.compile(r"[\w .:/=+@-]{0,256}")
_MOST_TAGS: Final = 20
_SHOWN: Final = 40
_OWN_TAGS: Final = ("Name",)
"""https://docs.aws.amazon.com/tag-editor/latest/userguide/best-practices-and-strats.html"""
_STACK: Final = r"^[^/\s]+/[^/\s]+/[^/\s]+$"

Program = Literal["all", "network", "control-plane", "node-pools", "on-prem", "release"]


Kind = Literal["existing", "eks", "kubeadm"]


class NodeSettings(Document):
    """What is the same for the nodes of every group."""

    ami: str | None = Field(
        default=None,
        description="ami-..., or ssm:/path of a public parameter that holds one; absent: the newest Ubuntu 24.04, on "
        "EKS AWS's own image for it",
    )
    roles: Literal["bundle", "baked", "none"] = Field(
        default="none",
        description="what makes nodes of them: the project's roles, fetched at boot (bundle) or lying on the image "
        "(baked), or none: the image joins in its own way",
    )
    bundle: str | None = Field(
        default=None, description="with roles: bundle, the file that `spillway nodes bundle` wrote: build/nodes.tar.gz"
    )
    scale_in_protection: bool = Field(
        default=True, description="only the autoscaler ends instances, never a group by itself"
    )
    kms_key: str | None = Field(
        default=None,
        pattern=r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:(key|alias)/\S+$",
        description="ARN of the KMS key that encrypts the volumes, e.g. arn:aws:kms:us-east-1:123456789012:key/...",
    )
    termination_wait: Span = Field(
        default=timedelta(minutes=15),
        description="how long an instance that EC2 takes away may wait for its jobs, 30s to 2h",
    )

    @model_validator(mode="after")
    def _bundle_goes_with_roles(self) -> NodeSettings:
        if (self.roles == "bundle") != (self.bundle is not None):
            raise ValueError(
                "roles: bundle needs bundle, the file that `spillway nodes bundle` wrote, e.g. build/nodes.tar.gz; "
                "other roles take none"
            )
        return self

    @field_validator("termination_wait")
    @classmethod
    def _wait_is_one_that_aws_takes(cls, span: timedelta) -> timedelta:
        if not timedelta(seconds=30) <= span <= timedelta(hours=2) or span.microseconds:
            raise ValueError("must be a whole number of seconds from 30s to 2h")
        return span

    @field_validator("ami")
    @classmethod
    def _ami_is_one(cls, text: str | None) -> str | None:
        if text is not None and not re.fullmatch(r"ami-[0-9a-f]{8,17}|ssm:/\S+", text):
            raise ValueError("must be an image such as ami-0123456789abcdef0, or ssm:/path/of/a/parameter")
        return text


class StackNames(Document):
    """Where a part that this program does not make is to be found: names of stacks, as ORGANIZATION/PROJECT/STACK."""

    network: str | None = Field(
        default=None, pattern=_STACK, description="stack of the network, e.g. organization/spillway/lab-network"
    )
    control_plane: str | None = Field(
        default=None,
        pattern=_STACK,
        description="stack of the control plane, e.g. organization/spillway/lab-control-plane",
    )


class ReleaseSettings(Document):
    """The autoscaler in the cluster."""

    image: ImageName = Field(description="its container image, e.g. registry.example.org/spillway/autoscaler:0.1.0")
    aws_access: Literal["irsa", "access-key"] | None = Field(
        default=None,
        description="how it gets its rights on AWS; else irsa on EKS, and access-key elsewhere",
    )
    pull_secret: str | None = Field(
        default=None,
        max_length=253,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        description="name of a Secret with the registry's credentials, e.g. registry-credentials",
    )


class Settings(Document):
    """Everything under ``spillway:`` in a stack file. Its paths start at the folder of ``Pulumi.yaml``."""

    model_config = ConfigDict(alias_generator=lambda name: f"{PROJECT}:{name}")

    program: Program = Field(default="all", description="what this stack makes: everything, or one part of it")
    stacks: StackNames = StackNames()
    policy: str = Field(description="path of the scaling policy, from the folder of Pulumi.yaml")
    inventory: str | None = Field(default=None, description="path of the list of on-prem machines")
    network: NetworkSettings = NetworkSettings()
    nodes: NodeSettings = NodeSettings()
    control_plane: ControlPlaneSettings | None = Field(
        default=None, description="an existing cluster, eks or kubeadm, by its kind; absent: none is made"
    )
    machines: MachineSettings = MachineSettings()
    connectivity: ConnectivitySettings | None = Field(
        default=None, description="how on-prem and the VPC reach each other: routed, wireguard or vpn, by its kind"
    )
    release: ReleaseSettings | None = Field(
        default=None, description="the autoscaler's release into the cluster; absent: none is made"
    )
    tags: dict[str, str] = Field(default_factory=dict, description="added to every AWS resource")

    @field_validator("tags")
    @classmethod
    def _tags_are_free(cls, tags: dict[str, str]) -> dict[str, str]:
        for key, value in tags.items():
            if key.lower().startswith(("aws:", f"{words.PREFIX}/")):
                raise ValueError(f"sets {key!r}: tags under aws: and {words.PREFIX}/ are taken")
            if key in _OWN_TAGS:
                raise ValueError(f"sets {key!r}: each resource has one of its own")
            if not _TAG_KEY.fullmatch(key) or not _TAG_VALUE.fullmatch(value):
                raise ValueError(
                    f"sets {_short(key)!r} to {_short(value)!r}: a key has 1 to 128 and a value at most 256 letters, "
                    "digits, spaces and _ . : / = + - @"
                )
        small = [key.lower() for key in tags]
        for key in tags:
            if small.count(key.lower()) > 1:
                raise ValueError(f"sets {key!r} twice, in small letters and large: IAM takes both for one key")
        if len(tags) > _MOST_TAGS:
            raise ValueError(
                f"sets {len(tags)} tags: AWS takes 50 on a resource, and some are ours: at most {_MOST_TAGS}"
            )
        return tags

    @property
    def policy_path(self) -> Path:
        """Returns the path of the policy file."""
        return project_folder() / self.policy

    @property
    def bundle_path(self) -> Path | None:
        """The bundle that nodes fetch, where they do."""
        return project_folder() / self.nodes.bundle if self.nodes.bundle else None

    @property
    def inventory_path(self) -> Path | None:
        """The inventory file, where there is one."""
        return project_folder() / self.inventory if self.inventory else None


def read_settings(configuration: Mapping[str, Any], *, stack: str) -> Settings:
    """The project's own keys of a stack's configuration, checked. Raises ``BadInput``."""
    own = {key: _decoded(value) for key, value in configuration.items() if key.startswith(f"{PROJECT}:")}
    return parse_data(own, Settings, source=f"Pulumi.{stack}.yaml")


def check_secrets(settings: Settings, *, encrypted: Collection[str], stack: str) -> None:
    """Whether what must be secret is, in the stack file; ``encrypted`` are its keys that are. Raises ``BadInput``."""
    section = f"{PROJECT}:control_plane"
    wanted = settings.control_plane
    if not isinstance(wanted, ExistingSettings) or section in encrypted:
        return
    in_clear = [name for name in ("kubeconfig", "join_token") if getattr(wanted, name) is not None]
    if in_clear:
        raise BadInput(
            "\n".join(
                f"Pulumi.{stack}.yaml: {section}.{name} stands there in clear: take it out, give it up, since whoever "
                f"reads the file has it, and set another by `pulumi config set --secret --path {section}.{name}`"
                for name in in_clear
            )
        )


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _decoded(value: Any) -> Any:
    """The engine hands objects and lists over as JSON."""
    if not isinstance(value, str) or not value.startswith(("{", "[")):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


_USUAL: Final[dict[Kind, AwsAccess]] = {
    "eks": "irsa",
    "kubeadm": "access-key",
    "existing": "access-key",
}


def access_of(settings: ReleaseSettings, kind: Kind) -> AwsAccess:
    """How the autoscaler comes to its rights on AWS. Raises ``BadInput`` where this control plane has no such way."""
    wanted = settings.aws_access or _USUAL[kind]
    if wanted != "access-key" and wanted != _USUAL[kind]:
        raise BadInput(
            f"spillway:release.aws_access = {wanted!r}: with a control plane of kind {kind} it must be "
            f"{' or '.join(sorted({_USUAL[kind], 'access-key'}))}"
        )
    return wanted
