"""How a plain process is confined, and what its provider permits: bubblewrap's command line.

Without bubblewrap a workload is UNCONFINED and is refused unless the provider's configuration
allows it.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from adapter.core.workload import RuntimeRefused
from adapter.mesh import netns
from adapter.mesh.host import HOSTS, LOOKUP, folder_of
from adapter.runtime.shim import ENTER
from adapter.runtime.stores.mounts import folder_of as folder_of_store
from adapter.runtime.volumes.handed import mounts
from adapter.runtime.workspace import NAMED, owner_ids
from marketplace.domain.work.cluster_store import FOLDER
from marketplace.domain.work.mesh_net import host_name
from marketplace.domain.work.workload import WORKSPACE, EgressMode, WorkloadSpec

UNCONFINED: Final = "UNCONFINED"
_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives",
                  "/etc/ld.so.cache", "/etc/ssl", "/etc/passwd", "/etc/group")  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProcessConfig:
    """What the process runtime may do.

    *unconfined* permits running without bubblewrap; *host_network* permits OPEN egress and ports,
    which share the host's network; *readable* are further folders shown read-only (a venv, data).
    """

    state: Path
    adapter: str
    unconfined: bool = False
    host_network: bool = False
    readable: tuple[str, ...] = ()
    bubblewrap: str | None = field(default_factory=lambda: shutil.which("bwrap"))
    deadline_s: float = 30.0
    driver_proc: Path = Path("/proc/driver/nvidia/gpus")


def require_possible(config: ProcessConfig, spec: WorkloadSpec) -> None:
    """:class:`RuntimeRefused` for what plain processes cannot do, or this provider does not."""
    if spec.image:
        raise RuntimeRefused("the process runtime runs no images", image=spec.image)
    if not spec.command:
        raise RuntimeRefused("a process needs a command")
    if config.bubblewrap is None and not config.unconfined:
        raise RuntimeRefused(f"bubblewrap is not installed: the workload would be {UNCONFINED}")
    if spec.egress.mode is EgressMode.LIST:
        raise RuntimeRefused("the process runtime cannot limit egress to a list")
    shared = spec.ports and spec.mesh is None
    if (spec.egress.mode is EgressMode.OPEN or shared) and not config.host_network:
        raise RuntimeRefused("this provider shares no host network with processes")
    if shared and spec.egress.mode is not EgressMode.OPEN:
        raise RuntimeRefused("a process has the host's network whole or not at all")
    if spec.mesh is not None:
        _require_mesh(config, spec)
    if config.bubblewrap is None and (spec.volumes or spec.store):
        raise RuntimeRefused(f"{UNCONFINED}: nothing is mounted without bubblewrap")
    if config.bubblewrap is None and spec.egress.mode is EgressMode.NONE:
        raise RuntimeRefused(f"{UNCONFINED}: egress cannot be denied without bubblewrap")


def _require_mesh(config: ProcessConfig, spec: WorkloadSpec) -> None:
    if spec.egress.mode is not EgressMode.NONE:
        raise RuntimeRefused("a plain process in a mesh has no network beside it")
    if config.bubblewrap is None:
        raise RuntimeRefused(f"{UNCONFINED}: a mesh has no member without bubblewrap")
    if not netns.is_there(netns.name_of(spec.lease, config.adapter)):
        raise RuntimeRefused("the member's mesh is not there: its adapter has none")


def device_nodes(uuids: tuple[str, ...], driver_proc: Path) -> list[str]:
    """The device files of these GPUs, by the driver's own table; RuntimeRefused for a missing
    one.
    """
    if not uuids:
        return []
    minors: dict[str, str] = {}
    for path in driver_proc.glob("*/information"):
        rows = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
        facts = {key.strip(): value.strip() for key, value in rows.items()}
        minors[facts.get("GPU UUID", "")] = facts.get("Device Minor", "")
    missing = [uuid for uuid in uuids if not minors.get(uuid)]
    if missing:
        raise RuntimeRefused(f"no device file for {', '.join(missing)}")
    shared = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]
    return [*shared, *(f"/dev/nvidia{minors[uuid]}" for uuid in uuids)]


def command_line(
    config: ProcessConfig, spec: WorkloadSpec, workspace: Path, nodes: list[str]
) -> list[str]:
    """The command line: bubblewrap, then setpriv to the workload's own user, then the job."""
    if config.bubblewrap is None:
        return list(spec.command)
    name = "tally" if spec.mesh is None else host_name(spec.mesh.member)
    line = [*_network(config, spec), config.bubblewrap, "--die-with-parent", "--new-session",
            "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
            "--hostname", name, "--cap-drop", "ALL", "--proc", "/proc", "--dev", "/dev",
            "--tmpfs", "/tmp", "--perms", "0755", "--dir", "/etc"]  # fmt: skip
    if spec.mesh is not None:
        for name in (HOSTS, LOOKUP):
            line += ["--ro-bind", str(folder_of(config.state, spec.lease) / name), f"/etc/{name}"]
    elif spec.egress.mode is EgressMode.NONE:
        line.append("--unshare-net")
    else:
        line += ["--ro-bind-try", "/etc/resolv.conf", "/etc/resolv.conf"]
    for path in _SYSTEM:
        line += ["--ro-bind-try", path, path]
    line += _shown(*_python_homes(), *config.readable)
    for node in nodes:
        line += ["--dev-bind-try", node, node]
    line += ["--bind", str(workspace), WORKSPACE]
    if spec.store:
        line += ["--bind", str(folder_of_store(config.state, spec.lease)), FOLDER]
    for place, mount in mounts(config.state, spec):
        line += ["--ro-bind" if mount.read_only else "--bind", str(place.files), mount.path]
    if os.geteuid() != 0:
        return [*line, "--chdir", WORKSPACE, "--unshare-user", "--", *spec.command]
    for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):
        line += ["--cap-add", capability]
    enter = ["/bin/sh", "-c", ENTER, "sh"]
    for shared in ("/tmp", "/dev/shm"):
        line += ["--chmod", "1777", shared]
    return [*line, "--", *_as_user(spec.user), *enter, *spec.command]


def _network(config: ProcessConfig, spec: WorkloadSpec) -> list[str]:
    """Bubblewrap itself is already in the member's network, which its mesh has made."""
    if spec.mesh is None:
        return []
    place = netns.path_of(netns.name_of(spec.lease, config.adapter))
    return ["nsenter", f"--net={place}", "--"]


def _shown(*folders: str) -> list[str]:
    """Read-only, and what is above each is there to go through: bubblewrap makes that its own
    user's alone, which the workload's is not.
    """
    line: list[str] = []
    for path in folders:
        for above in reversed(Path(path).parents[:-1]):
            line += ["--perms", "0755", "--dir", str(above)]
        line += ["--ro-bind-try", path, path]
    return line


def _python_homes() -> tuple[str, ...]:
    """This interpreter's own folders, so that ``python3`` means the same one inside."""
    return (sys.base_prefix,)


def environment(config: ProcessConfig, spec: WorkloadSpec, workspace: Path) -> dict[str, str]:
    """What a workload finds in its environment."""
    home = str(workspace) if config.bubblewrap is None else WORKSPACE
    search = [str(Path(sys.base_prefix) / "bin"), "/usr/local/bin", "/usr/bin", "/bin"]
    gpus = {"CUDA_VISIBLE_DEVICES": ",".join(spec.gpus)}
    defaults = {"PATH": os.pathsep.join(search), "HOME": home, **NAMED}
    defaults["TALLY_LEASE"] = spec.lease
    defaults |= spec.mesh.told() if spec.mesh is not None else {}
    return {**defaults, **spec.env, **spec.secrets, **gpus}


def _as_user(user: str) -> list[str]:
    """Become the workload's user for good; only then its folder can be entered, which is the user's
    alone."""
    uid, gid = owner_ids(user)
    return ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--no-new-privs",
            "--bounding-set=-all", "--inh-caps=-all", "--"]  # fmt: skip
