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
from adapter.runtime.shim import ENTER
from adapter.runtime.volumes.handed import mounts
from adapter.runtime.workspace import NAMED, owner_ids
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
    if (spec.egress.mode is EgressMode.OPEN or spec.ports) and not config.host_network:
        raise RuntimeRefused("this provider shares no host network with processes")
    if spec.ports and spec.egress.mode is not EgressMode.OPEN:
        raise RuntimeRefused("a process has the host's network whole or not at all")
    if config.bubblewrap is None and spec.volumes:
        raise RuntimeRefused(f"{UNCONFINED}: volumes cannot be mounted without bubblewrap")
    if config.bubblewrap is None and spec.egress.mode is EgressMode.NONE:
        raise RuntimeRefused(f"{UNCONFINED}: egress cannot be denied without bubblewrap")


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
    line = [config.bubblewrap, "--die-with-parent", "--new-session", "--unshare-pid",
            "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--hostname", "tally",
            "--cap-drop", "ALL", "--proc", "/proc", "--dev", "/dev",
            "--tmpfs", "/tmp"]  # fmt: skip
    if spec.egress.mode is EgressMode.NONE:
        line.append("--unshare-net")
    else:
        line += ["--ro-bind-try", "/etc/resolv.conf", "/etc/resolv.conf"]
    for path in (*_SYSTEM, *_python_homes(), *config.readable):
        line += ["--ro-bind-try", path, path]
    for node in nodes:
        line += ["--dev-bind-try", node, node]
    line += ["--bind", str(workspace), WORKSPACE]
    for place, mount in mounts(config.state, spec):
        line += ["--ro-bind" if mount.read_only else "--bind", str(place.files), mount.path]
    if os.geteuid() != 0:
        return [*line, "--chdir", WORKSPACE, "--unshare-user", "--", *spec.command]
    for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):
        line += ["--cap-add", capability]
    enter = ["/bin/sh", "-c", ENTER, "sh"]
    return [*line, "--chmod", "1777", "/tmp", "--", *_as_user(spec.user), *enter, *spec.command]


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
    return {**defaults, **spec.env, **spec.secrets, **gpus}


def _as_user(user: str) -> list[str]:
    """Become the workload's user for good; only then its folder can be entered, which is the user's
    alone."""
    uid, gid = owner_ids(user)
    return ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--no-new-privs",
            "--bounding-set=-all", "--inh-caps=-all", "--"]  # fmt: skip
