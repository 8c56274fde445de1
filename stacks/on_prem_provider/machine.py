"""A machine through its life: taken in, kept, compared with what was found, taken out. Never written on.

All that is done on the machine itself is one script that reads (``probe.py``); taking it out does not even connect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from autoscaler.config.documents import parse_span
from autoscaler.model.errors import BadInput, Unavailable
from autoscaler.model.resources import parse_quantity
from stacks.on_prem_provider.bootstrap_token import issue_token, withdraw_tokens
from stacks.on_prem_provider.drain import Drain, abandon
from stacks.on_prem_provider.findings import Finding, NotFit
from stacks.on_prem_provider.kube import Kube, RefusedError
from stacks.on_prem_provider.machine_args import MachineArgs, read_args, write_args
from stacks.on_prem_provider.node_objects import check_is_ours, cordon, is_ready, node_path, register, standing
from stacks.on_prem_provider.probe import SCRIPT, Wanted, findings, parse
from stacks.on_prem_provider.ssh import Login, Unreached, fingerprint, run_script
from stacks.on_prem_provider.values import Plain

SECRET: Final = ("joinToken",)
NOT_PROBED: Final = {"by": "nobody: probe is none, so that nothing here was compared with a machine"}
_PROBED: Final = frozenset({"address", "ssh", "gpus", "probe", "minDiskFree"})
"""A change of one of these is believed when the machine confirms it."""
_REGISTERED: Final = frozenset({"labels", "taints", "rack", "owner"})


def difference(old: Plain, new: Plain) -> tuple[list[str], list[str]]:
    """What changes, and what of it makes it another machine, so that the old one is drained and the new one joins."""
    inputs = write_args(read_args(new))
    changed = [key for key, value in inputs.items() if _without_nulls(old.get(key)) != _without_nulls(value)]
    replaces = [key for key in changed if key in ("name", "cluster", "member")]
    if "ssh" in changed and old["ssh"].get("hostKey") and old["ssh"]["hostKey"] != inputs["ssh"]["hostKey"]:
        replaces.append("ssh.hostKey")
    # What a refresh found wrong is told again by `up`, until it is mended.
    if old.get("problems"):
        changed.append("problems")
    if not old.get("registered", True):
        changed.append("registered")
    return changed, replaces


def create(kube: Kube | None, wanted: Plain, *, stack: str = "") -> Plain:
    """Probe, register, issue what it needs to join. Done again after a stop in the middle, it ends at the same."""
    args = read_args(wanted)
    found, token = _probed(args, kube), ""
    if args.member:
        register(_cluster(kube), args, stack=stack)
        token = issue_token(_cluster(kube), args.name, cluster=args.cluster)
    return {**write_args(args), "found": found, "problems": [], "registered": True, "joinToken": token}


def read(kube: Kube | None, state: Plain) -> Plain:
    """What stands now. What cannot be asked is left as it was last known, and told as a problem."""
    args = read_args(state)
    now: Plain = {**state, "problems": []}
    node = _cluster(kube).find(node_path(args.name)) if args.member else None
    now["registered"] = node is not None or not args.member
    if node is not None:
        check_is_ours(node, args.name)
        now |= standing(node, args)
    try:
        now["found"] = _probed(args, kube)
    except NotFit as unfit:
        now["problems"] = [finding.what for finding in unfit.findings]
    return now


def update(kube: Kube | None, old: Plain, new: Plain, *, stack: str = "") -> Plain:
    """Bring the node to what the program says; ask the machine again where that says something new of it."""
    before, args = read_args(old), read_args(new)
    changed = set(difference(old, new)[0])
    found = _probed(args, kube) if changed & _PROBED or old.get("problems") else old.get("found", {})
    if args.member and (changed & _REGISTERED or "registered" in changed):
        register(_cluster(kube), args, before=before, stack=stack)
    token = old.get("joinToken", "")
    if args.member and before.renew_join != args.renew_join:
        token = issue_token(_cluster(kube), args.name, cluster=args.cluster)
    return {**write_args(args), "found": found, "problems": [], "registered": True, "joinToken": token}


def delete(kube: Kube | None, state: Plain) -> None:
    """Cordon, drain, unregister. A machine that is down goes too where ``force_removal`` says so."""
    args = read_args(state)
    if not args.member:
        return
    try:
        _take_out(_cluster(kube), args)
        withdraw_tokens(_cluster(kube), args.name)
    except RefusedError as refused:
        raise Unavailable(f"the API server refused to take node {args.name} out: {refused}") from None


def _cluster(kube: Kube | None) -> Kube:
    if kube is None:
        raise BadInput("the provider of on-prem machines needs a kubeconfig: which cluster shall they join?")
    return kube


def _take_out(kube: Kube, args: MachineArgs) -> None:
    node = kube.find(node_path(args.name))
    if node is None:
        return
    check_is_ours(node, args.name)
    cordon(kube, args.name)
    if args.force_removal and not is_ready(node):
        abandon(kube, args.name)
    else:
        Drain(kube, args.name, timeout=parse_span(args.drain_timeout)).run()
    kube.delete(node_path(args.name), preconditions={"uid": node["metadata"]["uid"]})


def _probed(args: MachineArgs, kube: Kube | None) -> Plain:
    """What the machine says of itself. Raises ``NotFit`` with all that stands in the way."""
    if args.probe == "none":
        return dict(NOT_PROBED)
    where = f"machine {args.name} ({args.address})"
    ssh = args.ssh
    login = Login(address=args.address, port=ssh.port, user=ssh.user, key=ssh.key, host_key=ssh.host_key)
    try:
        seen = parse(run_script(login, SCRIPT))
    except Unreached as unreached:
        raise NotFit(where, [unreached.finding]) from None
    wrong: Sequence[Finding] = findings(seen, _wanted(args, kube))
    if wrong:
        raise NotFit(where, wrong)
    return {"by": "ssh", "hostKey": fingerprint(ssh.host_key), **seen.lasting()}


def _wanted(args: MachineArgs, kube: Kube | None) -> Wanted:
    return Wanted(
        authorities=kube.authorities if kube and args.member else frozenset(),
        gpus=args.gpus.count if args.gpus else 0,
        product=args.gpus.product if args.gpus else "",
        disk_free=int(parse_quantity(args.min_disk_free)),
    )


def _without_nulls(value: Any) -> Any:
    """A property that is nothing is not on the wire."""
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value]
    return value
