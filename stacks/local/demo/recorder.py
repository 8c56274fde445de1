"""The demo's eyes: a thread that watches the API server and the stand-in for EC2, and keeps what it saw.

It is independent of the autoscaler: what the demo claims is checked against what these two say.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Self

import boto3
import urllib3

from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable
from stacks.local.demo.claims import GroupSeen, InstanceSeen, Morning, NodeSeen, PodSeen, Purchase, Said, Told
from stacks.local.kubeapi.client import KubeHttp


class Recorder:
    """Watches pods and nodes from ``start`` to ``stop``; everything else is asked when it is needed."""

    def __init__(self, *, kube: KubeHttp, env: Mapping[str, str], cluster: str, prices: Mapping[str, float]) -> None:
        """``env``: of the ground; ``prices``: dollars per hour by name of the Auto Scaling group."""
        self._kube = kube
        self._aws_url = aws_url = env["AWS_ENDPOINT_URL"]
        self._cluster = cluster
        self._prices = prices
        self._http = urllib3.PoolManager(retries=False, timeout=10)
        self._scaling = boto3.client(
            "autoscaling",
            region_name=env["AWS_REGION"],
            endpoint_url=aws_url,
            aws_access_key_id=env["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=env["AWS_SECRET_ACCESS_KEY"],
        )
        self._pods: dict[str, PodSeen] = {}
        self._nodes: dict[str, NodeSeen] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._follow, args=("/api/v1/namespaces/default/pods", self._saw_pod), daemon=True),
            threading.Thread(target=self._follow, args=("/api/v1/nodes", self._saw_node), daemon=True),
        ]

    def __enter__(self) -> Self:
        """Begins to watch."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop watching; the threads end with their current read."""
        self._stopping.set()

    def pods(self) -> tuple[PodSeen, ...]:
        """Every pod of a training job or a service seen so far."""
        with self._lock:
            return tuple(self._pods.values())

    def nodes(self) -> tuple[NodeSeen, ...]:
        """Every node seen so far."""
        with self._lock:
            return tuple(self._nodes.values())

    def groups(self) -> tuple[GroupSeen, ...]:
        """The cluster's Auto Scaling groups as they are now."""
        pages = self._scaling.get_paginator("describe_auto_scaling_groups").paginate(
            Filters=[{"Name": f"tag:{words.TAG_CLUSTER}", "Values": [self._cluster]}]
        )
        return tuple(
            GroupSeen(name=group["AutoScalingGroupName"], minimum=group["MinSize"], desired=group["DesiredCapacity"])
            for page in pages
            for group in page["AutoScalingGroups"]
        )

    def purchases(self) -> tuple[Purchase, ...]:
        """Every granted request that launched instances, or raised a group's desired capacity."""
        asked = self._stand_in("requests")
        last: dict[str, int] = {}
        raised = []
        for request in asked:
            parameters = request["parameters"]
            if request["action"] not in ("LaunchInstances", "SetDesiredCapacity") or request["error"]:
                continue
            group = parameters["AutoScalingGroupName"]
            if request["action"] == "LaunchInstances":
                to = last.get(group, 0) + int(parameters["RequestedCapacity"])
            else:
                to = int(parameters["DesiredCapacity"])
            if to > last.get(group, 0):
                raised.append(Purchase(group=group, to=to, at=request["at"]))
            last[group] = to
        return tuple(raised)

    def instances(self) -> tuple[InstanceSeen, ...]:
        """Every instance that was ever launched."""
        return tuple(
            InstanceSeen(
                id=one["id"],
                group=one["group"],
                usd_per_hour=self._prices.get(one["group"], 0.0),
                launched_at=one["launched_at"],
                ended_at=one["ended_at"],
            )
            for one in self._stand_in("instances")
        )

    def told(self) -> tuple[Told, ...]:
        """The autoscaler's Events about pods."""
        events = self._kube.get("/api/v1/namespaces/default/events")["items"]
        return tuple(
            Told(pod=event["involvedObject"]["name"], reason=event["reason"], message=event.get("message", ""))
            for event in events
            if event["involvedObject"].get("kind") == "Pod"
            and words.AUTOSCALER in (event.get("reportingComponent"), event.get("source", {}).get("component"))
        )

    def jobs(self) -> dict[str, bool]:
        """Name of each batch/v1 Job that is there -> whether it is complete."""
        return {
            job["metadata"]["name"]: _condition(job, "Complete") is not None
            for job in self._kube.get("/apis/batch/v1/namespaces/default/jobs")["items"]
        }

    def morning(self, *, small: str, spill: str, impossible: str, service: str, elastic: str, said: Said) -> Morning:
        """All of it, for judging."""
        jobs = self.jobs()
        return Morning(
            small=small,
            spill=spill,
            impossible=impossible,
            service=service,
            elastic=elastic,
            pods=self.pods(),
            nodes=self.nodes(),
            purchases=self.purchases(),
            instances=self.instances(),
            groups=self.groups(),
            told=self.told(),
            said=said,
            jobs_left=frozenset(name for name, complete in jobs.items() if not complete),
        )

    def _stand_in(self, what: str) -> list[dict[str, Any]]:
        answer = self._http.request("GET", f"{self._aws_url}/spillway/{what}")
        found: list[dict[str, Any]] = json.loads(answer.data)[what]
        return found

    def _follow(self, path: str, saw: Any) -> None:
        """Watch from the beginning; after a cut, from the beginning again: ``saw`` takes the same news twice."""
        while not self._stopping.is_set():
            with contextlib.suppress(Unavailable, OSError, ValueError):
                for kind, thing in self._watch(path):
                    if self._stopping.is_set():
                        return
                    with self._lock:
                        saw(kind, thing, time.time())
            self._stopping.wait(0.2)

    def _watch(self, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        for event in self._kube.stream(f"{path}?watch=1&timeoutSeconds=300"):
            if event["type"] == "ERROR":
                return
            yield event["type"], event["object"]

    def _saw_pod(self, kind: str, pod: dict[str, Any], now: float) -> None:
        meta, status = pod["metadata"], pod.get("status", {})
        marks = meta.get("labels", {})
        job = marks.get(words.JOB) or marks.get("app")
        if not job:
            return
        seen = self._pods.get(meta["uid"]) or PodSeen(
            name=meta["name"],
            job=job,
            role=marks.get(words.ROLE, ""),
            gpus=sum(
                int(c.get("resources", {}).get("limits", {}).get(words.GPU, 0)) for c in pod["spec"]["containers"]
            ),
            created_at=now,
        )
        node = pod["spec"].get("nodeName")
        if node and seen.bound_at is None:
            seen = replace(seen, node=node, bound_at=now)
        if status.get("phase") in ("Succeeded", "Failed") and seen.finished_at is None:
            seen = replace(seen, finished_at=now, succeeded=status["phase"] == "Succeeded")
        self._pods[meta["uid"]] = replace(seen, gone=kind == "DELETED")

    def _saw_node(self, kind: str, node: dict[str, Any], now: float) -> None:
        meta, status = node["metadata"], node.get("status", {})
        seen = self._nodes.get(meta["uid"]) or NodeSeen(
            name=meta["name"],
            on_prem=meta.get("labels", {}).get(words.ORIGIN) != words.EC2,
            gpus=int(status.get("allocatable", {}).get(words.GPU, 0)),
        )
        if seen.ready_at is None and _condition(node, "Ready") is not None:
            seen = replace(seen, ready_at=now)
        self._nodes[meta["uid"]] = replace(seen, gone=kind == "DELETED")


def _condition(thing: dict[str, Any], kind: str) -> datetime | None:
    """When a condition became true; ``None`` while it is not."""
    for condition in thing.get("status", {}).get("conditions", []):
        if condition["type"] == kind and condition["status"] == "True":
            return datetime.fromisoformat(condition["lastTransitionTime"])
    return None
