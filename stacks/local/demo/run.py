"""`make demo`: the main job on one machine, told as it happens and judged at the end.

A morning in a lab: four GPU machines of its own, a policy that allows EC2, training jobs, one of them elastic, and a
service that would keep a bought node. The story runs through the same commands that a user has; its claims are checked
against the API server and EC2's stand-in by ``recorder.py``.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import FrameType

import yaml
from rich.console import Console

from autoscaler.config.policy import Policy, asg_name, read_policy
from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable
from stacks import ROOT
from stacks.local.demo.claims import Claim, Morning, Said, claims, figures
from stacks.local.demo.recorder import Recorder
from stacks.local.demo.view import View, report
from stacks.local.ground.lifecycle import Ground
from stacks.local.kubeapi.client import KubeHttp

SMALL, SPILL, IMPOSSIBLE, SERVICE, ELASTIC, SECOND = "small", "spill", "impossible", "web", "elastic", "second"
CONSOLIDATION = {"after": "1s", "every": "1s"}
"""What the operator adds to the policy: how long pods run before they are moved, how often a node may be emptied."""
LARGEST = 8
"""Workers of the elastic job at most; they need all GPUs of the machines that we own."""
PATIENCE = 150.0
"""Seconds that the slowest part of the story may take before the demo calls it failed."""


def run(*, policy: Path, inventory: Path, boot_delay: float = 3.0) -> int:
    """Tell the story; 0 where every claim held, 1 otherwise."""
    console = Console(highlight=False)
    began = time.monotonic()
    rules = read_policy(policy)
    with _ends_on_signals():
        console.print(
            "[bold]Spillway demo[/]: a hybrid cluster on this machine, and a morning of jobs on it.", soft_wrap=True
        )
        with Ground.up(
            name=f"demo-{os.getpid()}",
            policy=policy,
            inventory=inventory,
            boot_delay=boot_delay,
            tie=True,
            progress=lambda line: console.print(f"  {line}", soft_wrap=True),
        ) as ground:
            console.print(f"  the ground stands after {time.monotonic() - began:.0f} s\n")
            verdicts, morning = _morning(ground=ground, rules=rules, policy=policy, console=console)
            now = time.time()
        verdicts = (*verdicts, _all_is_down(ground))
    report(console, verdicts, figures(morning, now=now), boot_delay=boot_delay, took=time.monotonic() - began)
    return 0 if all(verdict.held for verdict in verdicts) else 1


def _morning(*, ground: Ground, rules: Policy, policy: Path, console: Console) -> tuple[tuple[Claim, ...], Morning]:
    prices = {
        asg_name(rules.cluster, entry.name, zone): entry.usd_per_hour or 0.0
        for entry in rules.groups
        for zone in entry.zones
    }
    kube = KubeHttp(ground.kubeconfig)
    acting = ground.directory / "policy.yaml"  # the operator's own copy, which is edited
    acting.write_text(policy.read_text(encoding="utf-8"), encoding="utf-8")
    commands = _Commands(env=ground.env, kubeconfig=ground.kubeconfig)
    with (
        Recorder(kube=kube, env=ground.env, cluster=rules.cluster, prices=prices) as recorder,
        ground.held(
            "autoscaler",
            [sys.executable, "-m", "spillway", "autoscale", "run", "--policy", str(acting), *("--log-format", "text")],
            env=ground.env | {"KUBECONFIG": str(ground.autoscaler_kubeconfig)},
        ),
        View(console=console, recorder=recorder, voice=ground.directory / "logs" / "autoscaler.log") as view,
    ):
        story = _Story(commands=commands, kube=kube, policy=acting, recorder=recorder, view=view)
        said = story.tell()
        morning = recorder.morning(
            small=SMALL, spill=SPILL, impossible=IMPOSSIBLE, service=SERVICE, elastic=ELASTIC, said=said
        )
    return claims(morning), morning


@dataclass(frozen=True, slots=True)
class _Commands:
    """The `spillway` command as a user would type it."""

    env: dict[str, str]
    kubeconfig: Path

    def run(self, *words: str) -> str:
        """Its output. Raises ``Unavailable`` with what it said where it failed."""
        done = subprocess.run(
            [sys.executable, "-m", "spillway", *words],
            env=os.environ | self.env | {"KUBECONFIG": str(self.kubeconfig)},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        if done.returncode:
            raise Unavailable(f"`spillway {' '.join(words)}` failed: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout


@dataclass(frozen=True, slots=True)
class _Story:
    """The morning, scene by scene. A scene that does not come to its end in time is left; the claims tell of it."""

    commands: _Commands
    kube: KubeHttp
    policy: Path
    recorder: Recorder
    view: View

    def tell(self) -> Said:
        """All scenes; what was said and done in them that neither the API server nor EC2 shows."""
        self._scene("A small job: it fits on the machines that we own.")
        self._submit(SMALL)
        self._until(lambda: self._all_bound(SMALL), "its pods are bound")

        self._scene("A bigger one: on-prem has room for a part of it, EC2 must grow for the rest.")
        self._submit(SPILL)
        self._until(lambda: self._all_bound(SPILL), "all of its pods are bound, none before the others")
        self._until(self._bought_is_open, "the node that was bought is open to other pods, too")
        self.view.say("kubectl apply: a service of one small pod, which the scheduler puts on the node that was bought")
        self.kube.send("POST", "/apis/apps/v1/namespaces/default/deployments", _SERVICE)
        self._until(lambda: self._all_bound(SERVICE), "it runs there")

        self._scene("One that no policy allows: 16 GPUs in a single pod. It is refused, and submitted anyway.")
        refused = self._refused(IMPOSSIBLE)
        self._submit(IMPOSSIBLE, "--anyway")
        self._until(self._impossible_told, "it is told why")
        explained = self._explain()
        self.view.say(explained)
        self.commands.run("jobs", "delete", IMPOSSIBLE)

        self._scene("Jobs finish. The service stays on the node that was bought, until the operator edits the policy.")
        self._until(lambda: self._ended(SMALL) and self._ended(SPILL), "both jobs have finished")
        edited_at = self._edit()
        self._until(self._is_moved, "the node is drained: the service runs on a machine that we own")

        self._scene("EC2 goes back to its minimum.")
        self._until(self._drained, "no EC2 instance is left")
        sizes = self._resize()
        return Said(refused=refused, explained=explained, edited_at=edited_at, obeyed_at=self._obeyed_at(), sizes=sizes)

    def _resize(self) -> tuple[int, int, int]:
        """The last scene; workers of the elastic job when it is alone, beside another job, and alone again."""
        self._scene("An elastic job: it grows onto the machines that we own, and makes room for another job.")
        self._submit(ELASTIC)
        self._until(lambda: self._workers() == LARGEST, f"it has grown from one worker to {LARGEST}")
        alone = self._workers()
        self._submit(SMALL, "-p", f"name={SECOND}")
        self._until(lambda: self._all_bound(SECOND), "the other job runs, on GPUs that it gave back")
        beside = self._workers()
        self.commands.run("jobs", "delete", SECOND)
        self._until(lambda: self._workers() == LARGEST, "it has grown again")
        again = self._workers()
        self.commands.run("jobs", "delete", ELASTIC)
        return alone, beside, again

    def _workers(self) -> int:
        """Counts the elastic job's workers that have a node and are not gone."""
        pods = [pod for pod in self.recorder.pods() if pod.job == ELASTIC and pod.role == "worker"]
        return sum(pod.bound_at is not None and not pod.gone for pod in pods)

    def _scene(self, title: str) -> None:
        self.view.scene(title)

    def _submit(self, job: str, *options: str) -> None:
        file = ROOT / "images" / "examples" / f"{job}.yaml"
        self.view.say(" ".join(("spillway jobs submit", f"images/examples/{file.name}", *options)))
        self.commands.run("jobs", "submit", str(file), *options)

    def _refused(self, job: str) -> str:
        """What is said in place of submitting it; empty where it is submitted."""
        try:
            self._submit(job)
        except Unavailable as refusal:
            said = str(refusal).partition("failed: ")[2]
            self.view.say(said)
            return said
        return ""

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        began = time.monotonic()
        while not holds():
            if time.monotonic() - began > PATIENCE:
                self.view.say(f"[red]gave up after {PATIENCE:.0f} s waiting until {what}[/]")
                return
            time.sleep(0.1)
        self.view.say(f"[green]{what}[/] ({time.monotonic() - began:.1f} s)")

    def _all_bound(self, job: str) -> bool:
        pods = [pod for pod in self.recorder.pods() if pod.job == job]
        return bool(pods) and all(pod.bound_at is not None for pod in pods)

    def _impossible_told(self) -> bool:
        pods = {pod.name for pod in self.recorder.pods() if pod.job == IMPOSSIBLE}
        return bool(pods) and pods <= {told.pod for told in self.recorder.told()}

    def _edit(self) -> float:
        """Edits the policy as an editor saves: a file beside it, renamed over it. Returns the time of day."""
        wanted = yaml.safe_load(self.policy.read_text(encoding="utf-8"))
        wanted.setdefault("scale_down", {})["consolidation"] = CONSOLIDATION
        beside = self.policy.with_suffix(".new")
        beside.write_text(yaml.safe_dump(wanted, sort_keys=False), encoding="utf-8")
        said = ", ".join(f"{key}: {value}" for key, value in CONSOLIDATION.items())
        self.view.say(f"the policy file is saved with scale_down.consolidation: {{{said}}}, for 10 minutes each")
        beside.replace(self.policy)
        return time.time()

    def _obeyed_at(self) -> float:
        """When the autoscaler took over the policy by which it acts, as it wrote it into the cluster."""
        kept = self.kube.get(f"/api/v1/namespaces/{words.NAMESPACE}/configmaps/{words.ACTING_POLICY}")
        return datetime.fromisoformat(json.loads(kept["data"]["about.json"])["since"]).timestamp()

    def _bought_is_open(self) -> bool:
        """The job that it was reserved for has started."""
        nodes = self.kube.get("/api/v1/nodes")["items"]
        return all(taint["key"] != words.RESERVED for node in nodes for taint in node["spec"].get("taints", ()))

    def _is_moved(self) -> bool:
        homes = {node.name for node in self.recorder.nodes() if node.on_prem}
        pods = [pod for pod in self.recorder.pods() if pod.job == SERVICE and not pod.gone]
        return bool(pods) and all(pod.node in homes for pod in pods)

    def _explain(self) -> str:
        pods = [pod for pod in self.recorder.pods() if pod.job == IMPOSSIBLE]
        if not pods:
            return ""
        return self.commands.run("autoscale", "explain", "pod", pods[0].name).strip()

    def _ended(self, job: str) -> bool:
        """Its workers succeeded and its other Jobs are complete or gone."""
        workers = [pod for pod in self.recorder.pods() if pod.job == job and pod.role == "worker"]
        jobs = self.recorder.jobs()
        mine = {name: complete for name, complete in jobs.items() if name.startswith(f"{job}-")}
        return bool(workers) and all(pod.succeeded for pod in workers) and all(mine.values())

    def _drained(self) -> bool:
        return (
            all(group.desired <= group.minimum for group in self.recorder.groups())
            and all(instance.ended_at is not None for instance in self.recorder.instances())
            and all(node.on_prem or node.gone for node in self.recorder.nodes())
        )


_MARKS = {"app": SERVICE}
_SERVICE = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": SERVICE},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": _MARKS},
        "template": {
            "metadata": {"labels": _MARKS},
            "spec": {
                "containers": [{"name": "web", "image": "web:1", "resources": {"requests": {"cpu": "1"}}}],
                "tolerations": [{"key": words.GPU, "operator": "Exists"}],
                "affinity": {
                    "nodeAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "weight": 100,
                                "preference": {
                                    "matchExpressions": [{"key": words.ORIGIN, "operator": "In", "values": [words.EC2]}]
                                },
                            }
                        ]
                    }
                },
            },
        },
    },
}
"""One pod that anything may move, and that the scheduler puts on a node of EC2 where one is open."""


def _all_is_down(ground: Ground) -> Claim:
    alive = [pid for pid in ground.pids if _is_alive(pid)]
    files = ground.directory.exists()
    return Claim(
        text="everything is taken down",
        held=not alive and not files,
        evidence=f"{len(ground.pids)} processes had run, {len(alive)} still do; "
        + ("its files are still there" if files else "its files are gone"),
    )


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextlib.contextmanager
def _ends_on_signals() -> Iterator[None]:
    """A terminal that closes or a `kill` ends the demo as Ctrl-C does: through every clean-up."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
