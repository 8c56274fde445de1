"""Which image the machines of a group boot from, and the look-up of one."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from stacks.config import Settings
from stacks.control_plane_settings import EksSettings
from stacks.on_prem_settings import UBUNTU
from stacks.shapes import Shape


@dataclass(frozen=True, kw_only=True)
class MachineImage:
    """An image, looked up."""

    id: pulumi.Output[str]
    root_device: pulumi.Output[str]
    """Its name, without which a launch template adds a second disk."""


class Images:
    """Looks images up, each once."""

    def __init__(self, provider: aws.Provider) -> None:
        self._options = pulumi.InvokeOutputOptions(provider=provider)
        self._found: dict[str, MachineImage] = {}

    def find(self, ami: str) -> MachineImage:
        """By id, or by the public parameter that holds one (``ssm:/path``)."""
        if ami not in self._found:
            self._found[ami] = self._look_up(ami)
        return self._found[ami]

    def _look_up(self, ami: str) -> MachineImage:
        key: pulumi.Output[str] = pulumi.Output.from_input(ami)
        if ami.startswith("ssm:"):
            key = aws.ssm.get_parameter_output(name=ami.removeprefix("ssm:"), opts=self._options).value
        by_id = key.apply(lambda one: [aws.ec2.GetAmiFilterArgs(name="image-id", values=[one])])
        image = aws.ec2.get_ami_output(filters=by_id, opts=self._options)
        return MachineImage(id=key, root_device=image.root_device_name)


def image_of_nodes(settings: Settings, shape: Shape) -> str:
    """The image that is configured; else on EKS the optimised one of its version, and the newest Ubuntu elsewhere."""
    if settings.nodes.ami:
        return settings.nodes.ami
    if isinstance(settings.control_plane, EksSettings):
        return eks_image(settings.control_plane.version, architecture=shape.architecture, gpus=shape.gpus)
    return UBUNTU


def eks_image(version: str, *, architecture: str, gpus: int) -> str:
    """AWS's own for EKS: Amazon Linux 2023, with NVIDIA's driver and container toolkit where there are GPUs.

    https://docs.aws.amazon.com/eks/latest/userguide/retrieve-ami-id.html
    """
    kind = f"{architecture}/{'nvidia' if gpus else 'standard'}"
    return f"ssm:/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/{kind}/recommended/image_id"
