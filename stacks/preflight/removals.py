"""What a stack file would take away of what the stack has made, though it reads like a change of one value.

The engine would make the new thing and delete the old one, with all nodes, jobs and secrets in it. So it is refused,
with the way to do it on purpose: another stack, or `pulumi destroy` first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from autoscaler.model.errors import BadInput
from stacks.preflight.inputs import Plans
from stacks.preflight.stack_state import StandingStack
from stacks.settings.control_plane import EksSettings, KubeadmSettings

_ON_PURPOSE = (
    "for another one beside it, bring up a stack of another name, with a policy of its own; to give this one up, "
    "`pulumi destroy` first (stacks/README.md, What makes another cluster of it)"
)


def check_nothing_is_given_up(plans: Plans, standing: StandingStack | None, *, parts: Collection[str]) -> None:
    """Whether what stands may stay what it is; ``parts`` are those that the program makes. Raises ``BadInput``."""
    if standing is None:
        return
    wrong = [*_of_cluster(plans, standing), *_of_parts(plans, standing, parts)]
    if not wrong and "network" in parts:
        wrong += _of_network(plans, standing)
    if not wrong and "control-plane" in parts:
        wrong += _of_control_plane(plans, standing)
    if wrong:
        raise BadInput("\n".join(f"{one}; {_ON_PURPOSE}" for one in wrong))


def _of_cluster(plans: Plans, standing: StandingStack) -> Iterator[str]:
    policy, source = plans.policy, plans.settings.policy_path
    for key, wanted, there in (
        ("cluster", policy.cluster, standing.cluster),
        ("region", policy.region, standing.region),
    ):
        if there and wanted != there:
            yield (
                f"{source}: {key} = {wanted!r} (spillway:policy), and this stack has made {there!r}, which would be "
                f"taken away with all its nodes: write {key}: {there}"
            )


def _of_parts(plans: Plans, standing: StandingStack, parts: Collection[str]) -> Iterator[str]:
    gone = sorted(standing.parts - set(parts))
    if gone:
        yield (
            f"spillway:program = {plans.settings.program!r}, and this stack has made {', '.join(gone)} as well, which "
            "would be taken away: write the program that it was brought up with, e.g. all"
        )


def _of_network(plans: Plans, standing: StandingStack) -> Iterator[str]:
    network, key = plans.settings.network, "spillway:network"
    wanted = network.vpc.id if network.vpc else ""
    if standing.cidr and network.vpc:
        yield (
            f"{key}.vpc.id = {wanted!r}, and this stack has made a VPC of its own ({standing.vpc_id}), which would be "
            "taken away with all that is in it: take network.vpc out"
        )
    elif standing.cidr and network.cidr != standing.cidr:
        yield (
            f"{key}.cidr = {network.cidr!r}, and the VPC that stands has {standing.cidr}, which it keeps: another one "
            f"would take its place, and all that is in it: write cidr: {standing.cidr}"
        )
    elif standing.vpc_id and not standing.cidr and wanted != standing.vpc_id:
        said = f"{key}.vpc.id = {wanted!r}" if wanted else f"{key}.vpc is gone"
        yield (
            f"{said}, and all of this stack stands in {standing.vpc_id}: it would be taken away there, and made anew: "
            f"write vpc: {{id: {standing.vpc_id}, ...}}"
        )


def _of_control_plane(plans: Plans, standing: StandingStack) -> Iterator[str]:
    wanted, key = plans.settings.control_plane, "spillway:control_plane"
    kind = wanted.kind if wanted else None
    if standing.kind and kind != standing.kind:
        said = f"{key}.kind = {kind!r}" if kind else f"{key} is gone"
        yield (
            f"{said}, and the control plane that stands is {standing.kind!r}, which would be taken away with all that "
            f"it holds: write kind: {standing.kind}"
        )
    elif isinstance(wanted, EksSettings) and standing.secrets_key:
        yield from _of_secrets_key(wanted, standing)
    elif isinstance(wanted, KubeadmSettings):
        for name, there in sorted(standing.networks.items()):
            if getattr(wanted, name) != there:
                yield (
                    f"{key}.{name} = {getattr(wanted, name)!r}, and the cluster was founded with {there}, which it "
                    f"keeps: its members would be replaced for nothing: write {name}: {there}"
                )
        if standing.names is not None and wanted.names != standing.names:
            yield (
                f"{key}.names = {_listed(wanted.names)}, and the cluster was founded with {_listed(standing.names)}, "
                "which no later `pulumi up` changes in a certificate: its members would be replaced for nothing: "
                f"write names: {_listed(standing.names)}, and give the members that stand another certificate "
                "(stacks/README.md, Another name in the certificate)"
            )


def _listed(names: Collection[str]) -> str:
    return f"[{', '.join(names)}]"


def _of_secrets_key(wanted: EksSettings, standing: StandingStack) -> Iterator[str]:
    there, key = standing.secrets_key, "spillway:control_plane.secrets_key"
    stays = f"the cluster's Secrets stand under {there}, and EKS changes no key: another cluster would take its place"
    if wanted.secrets_key and wanted.secrets_key != there:
        back = "take it out again" if standing.makes_secrets_key else f"write secrets_key: {there}"
        yield f"{key} = {wanted.secrets_key!r}: {stays}: {back}"
    if not wanted.secrets_key and not standing.makes_secrets_key:
        yield f"{key} is gone: {stays}: write secrets_key: {there}"
