"""Which image the machines of a group boot from, and the look-up of one, before any resource is declared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws as aws

from autoscaler.model.errors import BadInput, Unavailable
from stacks.nodes.instance_types import Shape
from stacks.settings.control_plane import EksSettings
from stacks.settings.stack import Settings

UBUNTU: Final = "ssm:/aws/service/canonical/ubuntu/server/24.04/stable/current/{architecture}/hvm/ebs-gp3/ami-id"
_NOT_THERE: Final = ("ParameterNotFound", "couldn't find resource", "query returned no results", "InvalidAMIID")
_BY_PARAMETER: Final = "ssm:"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineImage:
    """An image, looked up."""

    id: str
    root_device: str
    """Its name, without which a launch template adds a second disk."""
    architecture: str
    """As EC2 spells it: ``x86_64`` or ``arm64``."""


class Images:
    """Looks images up, each once."""

    def __init__(self, provider: aws.Provider, *, region: str) -> None:
        self._options = pulumi.InvokeOptions(provider=provider)
        self._region = region
        self._found: dict[str, MachineImage] = {}

    def find(self, ami: str, *, where: str, instance_type: str, architecture: str) -> MachineImage:
        """Finds an image by id, or by a public parameter that holds one (``ssm:/path``); ``where`` names the key.

        Raises ``BadInput`` for one that is not there, or from which the type does not boot; ``Unavailable`` where AWS
        does not answer.
        """
        image = self._find(ami, where)
        if image.architecture != architecture:
            raise BadInput(
                f"{where} = {ami!r}: is an image for {image.architecture}, and {instance_type} is {architecture}: no "
                "such machine would ever start: take an image and a type of one architecture"
            )
        return image

    def _find(self, ami: str, where: str) -> MachineImage:
        if ami not in self._found:
            try:
                self._found[ami] = self._look_up(ami)
            except Exception as error:  # noqa: BLE001 - the SDK has no type of its own for a look-up that failed
                if not any(said in str(error) for said in _NOT_THERE):
                    raise Unavailable(f"{where}: AWS does not tell which image {ami} is: {error}") from None
                raise BadInput(f"{where} = {ami!r}: {self._not_there(ami)}") from None
        return self._found[ami]

    def _look_up(self, ami: str) -> MachineImage:
        key = ami
        if ami.startswith(_BY_PARAMETER):
            key = aws.ssm.get_parameter(name=ami.removeprefix(_BY_PARAMETER), opts=self._options).value
        by_id = [aws.ec2.GetAmiFilterArgs(name="image-id", values=[key])]
        image = aws.ec2.get_ami(filters=by_id, opts=self._options)
        return MachineImage(id=key, root_device=image.root_device_name, architecture=image.architecture)

    def _not_there(self, ami: str) -> str:
        if ami.startswith(_BY_PARAMETER):
            return (
                f"there is no such parameter in {self._region}, or no image that it names: "
                f"`aws ssm get-parameter --name {ami.removeprefix(_BY_PARAMETER)}` must print the id of one"
            )
        return (
            f"this account sees no such image in {self._region}: "
            f"`aws ec2 describe-images --owners self --region {self._region}` lists yours; an image is of one region"
        )


def image_of_nodes(settings: Settings, shape: Shape) -> str:
    """The image that is configured; else on EKS the optimised one of its version, and the newest Ubuntu elsewhere."""
    if settings.nodes.ami:
        return settings.nodes.ami
    if isinstance(settings.control_plane, EksSettings):
        return eks_image(settings.control_plane.version, architecture=shape.architecture, gpus=shape.gpus)
    return ubuntu(shape.architecture)


def ubuntu(architecture: str) -> str:
    """The newest 24.04 of Canonical's own."""
    return UBUNTU.format(architecture="arm64" if architecture == "arm64" else "amd64")


def eks_image(version: str, *, architecture: str, gpus: int) -> str:
    """AWS's own for EKS: Amazon Linux 2023, with NVIDIA's driver and container toolkit where there are GPUs.

    https://docs.aws.amazon.com/eks/latest/userguide/retrieve-ami-id.html
    """
    kind = f"{architecture}/{'nvidia' if gpus else 'standard'}"
    return f"ssm:/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/{kind}/recommended/image_id"
