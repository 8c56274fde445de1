"""Role: containerd and runc, configured in the format of the version at hand, and images that need no registry."""

from __future__ import annotations

from typing import Any, Final

import tomli_w
from pyinfra.api.deploy import deploy
from pyinfra.context import host

from roles.deploys.docker import docker_packages, other_containerd
from roles.engine.batched_facts import PATH
from roles.engine.disruption import Disruption, disrupts
from roles.facts.packages import OsRelease
from roles.operations import files, images, packages, services, trust
from roles.operations.services import DAEMON_RELOAD, restarts
from roles.settings.cluster import ContainerRuntime
from roles.settings.machine import settings
from roles.settings.version_matrix import Chosen, choose, read_matrix

CONFIG: Final = "/etc/containerd/config.toml"
DROP_IN: Final = "/etc/systemd/system/containerd.service.d/90-spillway.conf"
REGISTRIES: Final = "/etc/containerd/certs.d"
RUNC: Final = "io.containerd.runc.v2"
BY_HAND: Final = tuple(
    f"/usr/local/{folder}/{program}" for folder in ("sbin", "bin") for program in ("runc", "containerd-shim-runc-v2")
)
"""Where these are put without a package. containerd takes the first on its path, which begins with these folders."""
_IS_WHOLE: Final = (
    "containerd --config {path} config dump > /run/.spillway-containerd"
    " && grep -q 'containerd.runtimes.runc\\]' /run/.spillway-containerd"
    " && grep -Eq 'default_runtime_name = .runc.' /run/.spillway-containerd; r=$?; rm -f /run/.spillway-containerd;"
    " [ $r = 0 ]"
)
"""containerd itself starts with a default runtime that does not exist, and then no pod does."""


@deploy("containerd and runc")
def container_runtime() -> None:
    """One writer of containerd's configuration: this role. What the NVIDIA runtime needs stands in the same file."""
    machine = settings()
    wanted = machine.container_runtime
    chosen = choose(read_matrix(), machine.versions, machine=machine.name)
    needed = runtime_packages(wanted, chosen, os=host.get_fact(OsRelease))
    with restarts("containerd"):
        packages.pinned(pins_of="containerd", wanted=needed, name="containerd's version is pinned")
        others = others_of(wanted.package, docker=bool(machine.gpu and machine.gpu.docker))
        packages.installed(wanted=needed, instead_of=others, name=f"containerd {chosen.containerd}")
        if "runc" in needed:  # a package of its own, small enough to be read every night
            packages.unaltered(names=("runc",), name="runc as packed")
    with disrupts(Disruption.CONTAINERD_RESTART):  # by the package itself, when it is unpacked
        packages.usable(paths=programs(wanted), name="containerd's programs can be run")
    for path in BY_HAND:
        files.absent(dest=path, name=f"no second one is found first: {path}")
    with restarts("containerd"):
        config = containerd_config(
            wanted,
            version=chosen.containerd,
            gpus=machine.gpu_count > 0,
            cni="/usr/lib/cni" if machine.pod_network.kind == "bridge" else "/opt/cni/bin",
        )
        files.place(
            name="containerd's configuration",
            dest=CONFIG,
            content=tomli_w.dumps(config),
            meaning="toml",
            validate=_IS_WHOLE,
        )
    with restarts(DAEMON_RELOAD), restarts("containerd"):
        files.place(
            name="containerd's limits",
            dest=DROP_IN,
            content=f"[Service]\nEnvironment=PATH={PATH}\nLimitMEMLOCK=infinity\nLimitNOFILE=1048576\n",
            meaning="ini",
        )
        services.no_unit_of_that_name(unit="containerd.service", name="containerd's unit is the packaged one")
        services.only_drop_ins(unit="containerd", allowed=(DROP_IN,), name="containerd has no other overrides")
    trust.registries_verified(folder=REGISTRIES, name="registries are verified")
    services.daemon_reload(name="systemd knows containerd's unit")
    services.running(unit="containerd", name="containerd runs")
    files.guarded(dest="/run/containerd/containerd.sock", mode="660", name="containerd listens to root alone")
    for image in wanted.images:
        images.imported(image=image.name, url=image.url, sha256=image.sha256, name=f"image {image.name}")


def runtime_packages(wanted: ContainerRuntime, chosen: Chosen, *, os: str) -> dict[str, str]:
    """Packages with their versions, as the distribution of ``os`` (debian-12) writes them. Docker's brings its runc."""
    if wanted.package == "containerd.io":
        return {"containerd.io": f"{chosen.containerd}-*"}
    if os.startswith("ubuntu"):
        return {"containerd": f"{chosen.containerd}-*", "runc": f"{chosen.runc}-*"}
    return {"containerd": f"{chosen.containerd}~*", "runc": f"{chosen.runc}+*"}


def others_of(package: str, *, docker: bool) -> tuple[str, ...]:
    """What this package of containerd takes the place of. A Docker of the other kind goes with it, where it is ours."""
    other = other_containerd(package)
    runtime = ("containerd", "runc") if other == "containerd" else (other,)
    return (*runtime, *docker_packages(other)) if docker else runtime


def programs(wanted: ContainerRuntime) -> tuple[str, ...]:
    """What a container is started by: Docker's package has its runc in another folder."""
    runc = "/usr/bin/runc" if wanted.package == "containerd.io" else "/usr/sbin/runc"
    return ("/usr/bin/containerd", "/usr/bin/containerd-shim-runc-v2", "/usr/bin/ctr", runc)


def containerd_config(
    wanted: ContainerRuntime, *, version: str, gpus: bool = False, cni: str = "/opt/cni/bin"
) -> dict[str, Any]:
    """Containerd's configuration: format 3 from containerd 2.0 on, whose CRI plugin is two, else format 2.

    Every runtime has the cgroup driver of the kubelet: a second one that differs has its pods killed within seconds
    (containerd issue 7276).
    """
    major, minor = (int(part) for part in version.split(".")[:2])
    systemd = wanted.cgroup_driver == "systemd"
    runtimes: dict[str, Any] = {"runc": {"runtime_type": RUNC, "options": {"SystemdCgroup": systemd}}}
    if gpus:
        options = {"BinaryName": "/usr/bin/nvidia-container-runtime", "SystemdCgroup": systemd}
        runtimes["nvidia"] = {"runtime_type": RUNC, "options": options}
    runtime: dict[str, Any] = {"restrict_oom_score_adj": wanted.keep_oom_scores}
    if (major, minor) >= (1, 7):
        runtime["enable_cdi"] = True
    runtime["containerd"] = {"default_runtime_name": "runc", "runtimes": runtimes}
    folders = {"bin_dirs": [cni]} if (major, minor) >= (2, 1) else {"bin_dir": cni}
    runtime["cni"] = {**folders, "conf_dir": "/etc/cni/net.d"}
    registry = {"registry": {"config_path": REGISTRIES}}
    if major >= 2:  # noqa: PLR2004 - the format's change
        images: dict[str, Any] = {"pinned_images": {"sandbox": wanted.sandbox_image}, **registry}
        plugins = {"io.containerd.cri.v1.images": images, "io.containerd.cri.v1.runtime": runtime}
        config: dict[str, Any] = {"version": 3, "plugins": plugins}
    else:
        cri = {"sandbox_image": wanted.sandbox_image, **runtime, **registry}
        config = {"version": 2, "plugins": {"io.containerd.grpc.v1.cri": cri}}
    return config
