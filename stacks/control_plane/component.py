"""The control plane, one of three by configuration: a cluster that is there, Amazon EKS, or kubeadm on instances."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from autoscaler.model.errors import BadInput
from stacks.control_plane.eks import EksControlPlane
from stacks.control_plane.existing import check_existing, read_kubeconfig
from stacks.control_plane.kubeadm import KubeadmArgs, KubeadmControlPlane
from stacks.network.parts import ControlPlanePart, NetworkPart
from stacks.nodes.images import MachineImage
from stacks.nodes.join import join_parameter
from stacks.project import project_folder
from stacks.settings.control_plane import EksSettings, ExistingSettings, KubeadmSettings
from stacks.settings.outputs import ControlPlaneOutput
from stacks.settings.stack import Settings

_EKS_ZONES = 2


def check_settings(settings: Settings, *, zones: tuple[str, ...], source: str) -> None:
    """What the rest of the stack must be for this control plane. Raises ``BadInput``; asks nothing outside."""
    wanted = settings.control_plane
    if isinstance(wanted, ExistingSettings):
        read_kubeconfig(wanted, root=project_folder())
    if isinstance(wanted, EksSettings) and len(set(zones)) < _EKS_ZONES:
        raise BadInput(
            f"{source}: all groups are in {', '.join(zones)}: EKS needs subnets in two zones, so name another one"
        )
    if isinstance(wanted, EksSettings) and settings.network.rules == "own":
        raise BadInput(
            "spillway:network.rules = 'own': with control_plane.kind eks the ways from its API server to the nodes are "
            "rules of their security group as well, and not of the network: write rules: shared, or take it out"
        )


def check_reachable(settings: Settings) -> None:
    """Ask an existing cluster before anything is made. Raises ``BadInput`` or ``Unavailable``."""
    if isinstance(settings.control_plane, ExistingSettings):
        kubeconfig = read_kubeconfig(settings.control_plane, root=project_folder())
        check_existing(kubeconfig, at_least=settings.control_plane.at_least)


def make_control_plane(
    settings: Settings,
    *,
    cluster: str,
    region: str,
    network: NetworkPart | None,
    zones: tuple[str, ...],
    image: MachineImage | None,
    opts: pulumi.ResourceOptions,
) -> ControlPlanePart:
    """The control plane that the settings ask for; ``network`` is where one of our own stands.

    ``image`` is that of kubeadm's members.
    """
    wanted = settings.control_plane
    if isinstance(wanted, ExistingSettings):
        return ExistingControlPlane(cluster, wanted, cluster=cluster, opts=opts).part
    if isinstance(wanted, EksSettings) and network is not None:
        return EksControlPlane(
            cluster, wanted, cluster=cluster, region=region, network=network, zones=zones, opts=opts
        ).part
    if isinstance(wanted, KubeadmSettings) and network is not None and image is not None:
        args = KubeadmArgs(
            settings=wanted,
            cluster=cluster,
            region=region,
            network=network,
            zones=zones,
            image_id=image.id,
        )
        return KubeadmControlPlane(cluster, args, opts=opts).part
    raise BadInput(f"spillway:control_plane: kind {wanted.kind if wanted else None} needs a network")


class ExistingControlPlane(pulumi.ComponentResource):
    """A control plane that is there: nothing is made but the place of its join token, where one is given."""

    part: ControlPlanePart

    def __init__(
        self,
        name: str,
        settings: ExistingSettings,
        *,
        cluster: str,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("spillway:control:Existing", name, None, opts)
        if settings.join_token:
            aws.ssm.Parameter(
                f"{name}-join-token",
                name=join_parameter(cluster),
                type="SecureString",
                value=pulumi.Output.secret(settings.join_token.get_secret_value()),
                description=f"Bootstrap token of the nodes of {cluster}",
                opts=pulumi.ResourceOptions(parent=self),
            )
        self.part = existing_part(settings, cluster=cluster)
        self.register_outputs({"endpoint": self.part.about.endpoint})


def existing_part(settings: ExistingSettings, *, cluster: str) -> ControlPlanePart:
    """What the other parts need to know of a cluster that is there: its kubeconfig says it all."""
    kubeconfig = read_kubeconfig(settings, root=project_folder())
    about = ControlPlaneOutput(
        kind="existing",
        endpoint=kubeconfig.endpoint,
        certificate_authority=kubeconfig.certificate_authority,
        join_parameter=join_parameter(cluster) if settings.join_token else "",
    )
    return ControlPlanePart(
        kind="existing",
        about=pulumi.Output.from_input(about),
        kubeconfig=pulumi.Output.secret(kubeconfig.text),
    )
