"""Pods from Kubernetes objects in a file: the pods themselves, and those that workload objects there will make.

``kubectl get pods,podgroups,jobs -o json`` writes such a List, ``helm template`` such a stream. Sizes of gangs are read
as the same objects say them. A PodGroup, Workload or job that is not in it says nothing; its pods then are a gang of
those that are there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from autoscaler.inputs.asked import Asked
from autoscaler.inputs.kube_lists import Written
from autoscaler.inputs.placeholders import Application, application_with, in_their_places, made_for
from autoscaler.inputs.pod_autoscalers import PodAutoscalers
from autoscaler.inputs.train_jobs import TrainJobs
from autoscaler.inputs.volumes import Volumes
from autoscaler.inputs.workload_objects import (
    PodMade,
    makes_no_pods,
    model_of,
    own_claims_of,
    pods_made_by,
    runs_something,
    unwrapped,
)
from autoscaler.kube.schema.convert import daemon_set_from, pod_from
from autoscaler.kube.schema.core import DaemonSetJson, JobJson, Json, Meta, PodJson, PodSpec
from autoscaler.kube.schema.gang_detection import may_be_alone, must_be_told
from autoscaler.kube.schema.gang_kinds import SERVED, Api, GangSizes
from autoscaler.kube.schema.jobs import job_from
from autoscaler.kube.schema.provisioning import PodTemplateJson, RequestJson, request_from, template_from
from autoscaler.kube.watched_kinds import PROVISIONING
from autoscaler.model.cluster import FOREVER, DaemonSet, GangRef, GangSize, Pod
from autoscaler.model.enumeration import counted, few
from autoscaler.model.errors import BadInput
from autoscaler.planner.demand.requested_gangs import MOST_PODS, not_come, size_of

_Sizes = dict[tuple[str, str], GangSize]
_SYSTEM_PRIORITIES: Final = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
"""https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/"""


class _PriorityClass(Json, frozen=True):
    """schedulingv1.PriorityClass."""

    metadata: Meta
    value: int = 0
    global_default: bool = False


@dataclass(slots=True)
class _Reading:
    """What has been read so far."""

    pods: list[Pod] = field(default_factory=list)
    made: list[Pod] = field(default_factory=list)
    """Of workload objects."""
    workloads: list[tuple[Written, Any]] = field(default_factory=list)
    daemon_sets: list[DaemonSet] = field(default_factory=list)
    sizes: _Sizes = field(default_factory=dict)
    classes: dict[str, int] = field(default_factory=lambda: dict(_SYSTEM_PRIORITIES))
    default_class: int = 0
    by_class: dict[str, str] = field(default_factory=dict)
    """Pod key -> its priority class, where the API server has not filled in the number."""
    listed: bool = False
    """Pods of an API server are there: then its workload objects have theirs among them."""
    volumes: Volumes = field(default_factory=Volumes)
    applications: dict[tuple[str, str], Application] = field(default_factory=dict)
    """YuniKorn's, by namespace and id."""
    train_jobs: TrainJobs = field(default_factory=TrainJobs)
    pod_autoscalers: PodAutoscalers = field(default_factory=PodAutoscalers)
    requests: list[tuple[Written, RequestJson]] = field(default_factory=list)
    templates: dict[tuple[str, str], Pod] = field(default_factory=dict)
    """PodTemplates, by namespace and name."""
    idle: Counter[str] = field(default_factory=Counter)
    """Objects that run nothing, by kind."""
    unknown: Counter[str] = field(default_factory=Counter)
    """Objects of kinds that are not known here, which do not look as if they ran something."""
    generated: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Names that were generated so far, by namespace, kind and beginning."""
    notes: list[str] = field(default_factory=list)


def asked_in(objects: Iterable[Written], source: str) -> Asked:
    """All pods that the objects are or make. Raises :class:`BadInput` for what is no Kubernetes object."""
    reading = _Reading()
    for written in objects:
        if not written.is_object:
            raise BadInput(f"{source}: holds {written.told()}, which is no Kubernetes object")
        for one in unwrapped(written):
            _read(one, reading)
    for one in reading.train_jobs.job_sets():
        _read(one, reading)
    for one, model in reading.workloads:
        _expand(one, model, reading)
    _keep_room(reading)
    for one, request in reading.requests:
        reading.made += _requested(one, request, reading)
    pods = [_sized(pod, reading.sizes) for pod in (*reading.pods, *_named_apart(reading))]
    kept = tuple(_with_priority(pods, reading))
    storage, assumed = reading.volumes.of(kept)
    return Asked(kept, tuple(reading.daemon_sets), storage=storage, notes=(*_notes(reading), *assumed))


def _read(one: Written, reading: _Reading) -> None:
    group, kind = one.api_group, one.kind or "Pod"
    reading.notes += _amounts_left_out(one)
    if kind == "Pod":
        _read_pod(one, reading)
        return
    if (group, kind) == ("apps", "DaemonSet"):
        reading.daemon_sets.append(one.made(DaemonSetJson, daemon_set_from))
        return
    one = _with_name(one, reading)
    if reading.volumes.read(one) or reading.train_jobs.read(one):
        return
    if (group, kind) == ("", "PodTemplate"):
        pod = one.made(PodTemplateJson, template_from)
        reading.templates[pod.namespace, pod.name] = pod
    if (group, kind) == (PROVISIONING, "ProvisioningRequest"):
        reading.requests.append((one, one.read(RequestJson)))
        return
    if (group, kind) == ("scheduling.k8s.io", "PriorityClass"):
        found = one.read(_PriorityClass)
        reading.classes[found.metadata.name] = found.value
        reading.default_class = found.value if found.global_default else reading.default_class
    size, model, version = _sizes_said(one), model_of(one), one.api_version or "no apiVersion"
    reading.sizes |= size or {}
    if model is not None:
        reading.workloads.append((one, model))
    elif size is not None or reading.pod_autoscalers.read(one) or makes_no_pods(one):
        reading.idle[kind] += 1
    elif runs_something(one):
        reading.notes.append(f"{one.named()} ({version}) is not planned for: what it runs is not understood")
    else:
        reading.unknown[f"{kind} ({version})"] += 1


def _amounts_left_out(one: Written) -> Iterator[str]:
    for resource in one.amounts_left_out():
        yield f"{one.named()} asks for {resource} without a number, which counts as 0"


def _with_name(one: Written, reading: _Reading) -> Written:
    """The object; one that is to be given its name by the API server has one already."""
    raw = one.plain()
    meta = raw.get("metadata")
    if not isinstance(meta, dict) or meta.get("name") or not meta.get("generateName"):
        return one
    start = str(meta["generateName"])
    key = str(meta.get("namespace")), one.kind or "", start
    reading.generated[key] += 1
    name = f"{start}{reading.generated[key] - 1}"
    return replace(one, raw={**raw, "metadata": {**meta, "name": name}})


def _read_pod(one: Written, reading: _Reading) -> None:
    def with_claims(raw: PodJson) -> tuple[PodJson, Pod]:
        for claim in own_claims_of(raw):
            reading.volumes.add_made(claim)
        return raw, pod_from(raw)

    raw, pod = one.made(PodJson, with_claims)
    if not pod.name and raw.metadata.generate_name:
        pod = replace(pod, name=raw.metadata.generate_name)
        reading.made.append(pod)
    else:
        reading.pods.append(pod)
    reading.listed = reading.listed or bool(pod.uid)
    application_with(reading.applications, PodMade(pod, raw.spec, raw.metadata))
    _note_class(pod, raw.spec, reading)


def _sizes_said(one: Written) -> _Sizes | None:
    """``None``: it is of no kind that says a gang's size."""
    if (one.api_group, one.kind) == ("batch", "Job"):
        job = job_from(one.read(JobJson))
        return {(job.namespace, size_source): size for size_source, size in job.gang_sizes}
    api = _api(one)
    if api is None:
        return None
    parsed = one.read(api.model)
    return {(parsed.metadata.namespace, size_source): size for size_source, size in _said(api, parsed)}


def _api(one: Written) -> Api | None:
    resource = f"{(one.kind or '').lower()}s"
    return next((api for api in SERVED if (api.group, api.resource) == (one.api_group, resource)), None)


def _said(api: Api, parsed: Any) -> GangSizes:
    return api.says(parsed)


def _expand(one: Written, model: Any, reading: _Reading) -> None:
    """Its pods, where they are not among those that an API server listed."""

    def pods(workload: Any) -> list[PodMade] | None:
        if reading.listed and workload.metadata.uid:
            return None
        found = list(pods_made_by(one, reading.pod_autoscalers.scaled(one, workload)))
        for pod in found:
            for claim in pod.claims:
                reading.volumes.add_made(claim)
        return found

    made = one.made(model, pods)
    for found_pod in made or ():
        reading.made.append(found_pod.pod)
        application_with(reading.applications, found_pod)
        _note_class(found_pod.pod, found_pod.spec, reading)
    if made == []:
        reading.notes.append(f"{one.named()} asks for no pods as it is")


def _keep_room(reading: _Reading) -> None:
    """Placeholders of YuniKorn's task groups are asked for in place of the pods that they keep room for."""
    for (_, name), application in reading.applications.items():
        made = list(made_for(application))
        covered = {id(member.pod) for member in in_their_places(application, made)}
        reading.pods = [pod for pod in reading.pods if id(pod) not in covered]
        reading.made = [pod for pod in reading.made if id(pod) not in covered]
        for placeholder in made:
            reading.made.append(placeholder.pod)
            _note_class(placeholder.pod, placeholder.spec, reading)
        if covered:
            theirs = "takes the place of a placeholder" if len(covered) == 1 else "take the places of placeholders"
            reading.notes.append(f"YuniKorn's application {name}: {len(covered)} of its pods {theirs}")


def _requested(one: Written, request: RequestJson, reading: _Reading) -> list[Pod]:
    """Pods that a ProvisioningRequest asks room for and that are not in the file: a gang."""
    asked, meta = request_from(request), request.metadata
    if asked is None:
        reading.notes.append(f"{one.named()} asks for nothing, or another autoscaler, as it is")
        return []
    sets = [(reading.templates.get((meta.namespace, one.template)), one.count) for one in asked.pod_sets]
    many = size_of(asked)
    if many > MOST_PODS or not all(pod for pod, _ in sets):
        missing = [one.template for (pod, _), one in zip(sets, asked.pod_sets, strict=True) if pod is None]
        why = f"PodTemplate {missing[0]} is not in the file" if missing else f"it asks for more than {MOST_PODS} pods"
        reading.notes.append(f"{one.named()} is not planned for: {why}")
        return []
    gang = GangRef(meta.namespace, f"{meta.name} (ProvisioningRequest)", size=many)
    wanted = [
        replace(pod, name=f"{meta.name}-{pod.name}", gang=gang, patience=pod.patience if asked.may_buy else FOREVER)
        for pod, count in sets
        if pod is not None
        for _ in range(count)
    ]
    mine = (meta.namespace, meta.name)
    left = not_come(wanted, [pod for pod in (*reading.pods, *reading.made) if (pod.namespace, pod.consumes) == mine])
    return [replace(pod, gang=replace(gang, size=len(left))) for pod in left]


def _note_class(pod: Pod, spec: PodSpec, reading: _Reading) -> None:
    if not pod.priority and spec.priority_class_name:
        reading.by_class[pod.key] = spec.priority_class_name


def _named_apart(reading: _Reading) -> Iterator[Pod]:
    """Pods that a controller or the API server names: each gets a name of its own."""
    taken = {pod.key for pod in reading.pods}
    numbers: defaultdict[str, int] = defaultdict(int)
    for pod in reading.made:
        named, wanted = pod, pod.key
        while named.key in taken or not named.name or named.name.endswith("-"):
            named = replace(pod, name=f"{pod.name.removesuffix('-')}-{numbers[wanted]}")
            numbers[wanted] += 1
        taken.add(named.key)
        if wanted in reading.by_class:
            reading.by_class[named.key] = reading.by_class[wanted]
        yield named


def _with_priority(pods: Iterable[Pod], reading: _Reading) -> Iterator[Pod]:
    unknown: Counter[str] = Counter()
    for pod in pods:
        name = reading.by_class.get(pod.key)
        if name is not None and name not in reading.classes:
            unknown[name] += 1
        value = reading.classes.get(name or "", reading.default_class)
        is_told = bool(pod.priority or pod.uid)  # the API server fills it in
        yield pod if is_told or not value else replace(pod, priority=value)
    reading.notes += [
        f"PriorityClass {name} is not in the file: {counted(many, 'pod')} that {'names' if many == 1 else 'name'} it"
        f" {'counts' if many == 1 else 'count'} as priority {reading.default_class}"
        for name, many in sorted(unknown.items())
    ]


def _notes(reading: _Reading) -> Iterator[str]:
    yield from (*reading.notes, *reading.train_jobs.assumed, *reading.pod_autoscalers.notes)
    if reading.daemon_sets and not reading.listed:
        several = counted(len(reading.daemon_sets), "DaemonSet")
        names = few(one.name for one in reading.daemon_sets)
        yield f"pods of {several} take room of each node that they select, and are not listed: {names}"
    told = "object that runs nothing was", "objects that run nothing were"
    yield from _passed_over(reading.idle, *told)
    signs = "with no sign of running anything,"
    yield from _passed_over(
        reading.unknown,
        f"object of a kind that is not known, {signs} was",
        f"objects of kinds that are not known, {signs} were",
    )


def _passed_over(kinds: Counter[str], one: str, several: str) -> Iterator[str]:
    if kinds:
        told = ", ".join(f"{many} {kind}" for kind, many in sorted(kinds.items()))
        yield f"{kinds.total()} {one if kinds.total() == 1 else several} passed over: {told}"


def _sized(pod: Pod, sizes: Mapping[tuple[str, str], GangSize]) -> Pod:
    ref = pod.gang
    if ref is None:
        return pod
    said = sizes.get((ref.namespace, ref.size_source))
    if said is None:
        return replace(pod, gang=None) if may_be_alone(ref) else pod
    if said.one_by_one:
        return replace(pod, gang=None)
    told = replace(ref, size=ref.size or said.size, minimum=ref.minimum or said.minimum)
    return replace(pod, gang=replace(told, size_source="") if must_be_told(ref) else told)
