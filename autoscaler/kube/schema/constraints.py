"""What a pod spec says of where the pod may go: node affinity, rules between pods, host ports, volumes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec

from autoscaler.kube.schema.core import LabelSelector, Meta, NodeSelector, PodAffinity, PodSpec
from autoscaler.kube.schema.storage import ClaimJson, OwnClaimJson
from autoscaler.kube.schema.values import same
from autoscaler.model.constraints import NOTHING, PodTerm, Requirement, Spread, Term, Toleration

_CLAIM, _OWN_CLAIM = "persistentVolumeClaim", "ephemeral"
_EVERYWHERE: Final = frozenset(
    {
        *("configMap", "downwardAPI", "emptyDir", "gitRepo", "hostPath", "image", "nfs", "projected", "secret"),
        *("cephfs", "csi", "fc", "flexVolume", "flocker", "glusterfs", "quobyte", "scaleIO", "storageos"),
    }
)
"""Kinds of volume that the scheduler asks nothing about."""


def affinity_of(spec: PodSpec) -> tuple[Term, ...]:
    """Node selector and required node affinity as alternatives, each complete in itself.

    A term that asks for nothing matches no node.
    """
    chosen = tuple(Requirement(key, "In", (value,)) for key, value in sorted(spec.node_selector.items()))
    required = spec.affinity.node_affinity.required
    if required is None:
        return (chosen,) if chosen else ()
    return tuple(
        chosen + tuple(expression.requirement() for expression in term.match_expressions)
        for term in required.node_selector_terms
        if term.match_expressions
    ) or (((chosen,) if chosen else ()) if _has_fields(required) else (NOTHING,))


def _has_fields(required: NodeSelector) -> bool:
    return any(term.match_fields for term in required.node_selector_terms)


def tolerations_of(spec: PodSpec) -> tuple[Toleration, ...]:
    """Taints that it is not kept off by."""
    return same(tuple(Toleration(one.key, one.operator or "Equal", one.value, one.effect) for one in spec.tolerations))


def pod_terms_of(affinity: PodAffinity, meta: Meta) -> tuple[PodTerm, ...]:
    """Required rules between it and pods of others, by topology. Without a selector a term is about no pod at all."""
    return same(
        tuple(
            PodTerm(
                topology_key=term.topology_key,
                selector=_term(term.label_selector)
                + _by_keys(term.match_label_keys, meta, "In")
                + _by_keys(term.mismatch_label_keys, meta, "NotIn"),
                namespaces=frozenset(
                    term.namespaces or (() if term.namespace_selector is not None else (meta.namespace,))
                ),
                namespace_selector=None if term.namespace_selector is None else term.namespace_selector.term(),
            )
            for term in affinity.required
        )
    )


def spread_of(spec: PodSpec, meta: Meta) -> tuple[Spread, ...]:
    """Its topology spread constraints that the scheduler must keep.

    One that selects all pods counts none, as in the scheduler (``countPodsMatchSelector``): it asks for a label alone.
    """
    return same(
        tuple(
            Spread(
                topology_key=one.topology_key,
                max_skew=one.max_skew,
                selector=_term(one.label_selector) + _by_keys(one.match_label_keys, meta, "In") or NOTHING,
                min_domains=one.min_domains,
            )
            for one in spec.topology_spread_constraints
            if one.when_unsatisfiable == "DoNotSchedule"
        )
    )


def _term(selector: LabelSelector | None) -> Term:
    return NOTHING if selector is None else selector.term()


def _by_keys(keys: Iterable[str], meta: Meta, operator: Literal["In", "NotIn"]) -> Term:
    """``matchLabelKeys``: the pod's own value of each."""
    return tuple(Requirement(key, operator, (meta.labels[key],)) for key in keys if key in meta.labels)


def host_ports_of(spec: PodSpec) -> frozenset[tuple[str, int]]:
    """Protocol and port of each, of containers and sidecars; on the network of its host each port is one."""
    sidecars = (one for one in spec.init_containers if one.is_sidecar)
    ports = [port for container in (*spec.containers, *sidecars) for port in container.ports]
    used = ((port.protocol, port.host_port or port.container_port * spec.host_network) for port in ports)
    return same(frozenset((protocol, number) for protocol, number in used if number))


def not_understood_in(spec: PodSpec) -> Iterator[str]:
    """Each rule that may keep the pod from a node on which we would place it."""
    if spec.resource_claims:
        yield f"resource claims ({', '.join(claim.name for claim in spec.resource_claims)})"
    for volume in spec.volumes:
        for kind in volume.keys() - _EVERYWHERE - {"name", _CLAIM, _OWN_CLAIM}:
            yield f"volume {volume.get('name', '')} of kind {kind}"
    for spread in spec.topology_spread_constraints:
        if spread.when_unsatisfiable == "DoNotSchedule" and (
            spread.node_affinity_policy != "Honor" or spread.node_taints_policy != "Ignore"
        ):
            yield f"topology spread by {spread.topology_key} with its own node policies"
    required = spec.affinity.node_affinity.required
    if required is not None and _has_fields(required):
        yield "node affinity with matchFields"


def own_claims(spec: PodSpec) -> Iterator[tuple[str, ClaimJson]]:
    """The pod's ephemeral volumes, each with the template of its claim."""
    for volume in spec.volumes:
        if _OWN_CLAIM in volume:
            found = msgspec.convert(volume[_OWN_CLAIM] or {}, OwnClaimJson, strict=False)
            yield str(volume.get("name", "")), ClaimJson(Meta(), found.volume_claim_template.spec)


def claims_of(meta: Meta, spec: PodSpec) -> Iterator[str]:
    """Names of its volume claims: that of an ephemeral volume is named after the pod and the volume."""
    for volume in spec.volumes:
        source = volume.get(_CLAIM)
        if isinstance(source, dict):
            yield str(source.get("claimName", ""))
        elif _OWN_CLAIM in volume:
            yield f"{meta.name}-{volume.get('name', '')}"
