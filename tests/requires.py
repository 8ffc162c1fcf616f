"""What a test needs from the machine: skipped without it on a laptop, failed without it where
everything must run.

Each ``need_*`` returns quietly when the component is there. Otherwise the test is skipped, or, with
``TALLY_REQUIRE_ALL=1`` (set by CI), fails: a skipped check must never count as a passed one.
"""

from __future__ import annotations

import functools
import glob
import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from adapter.devices.nvml.faults import NvmlFault
from adapter.devices.nvml.nvml import Nvml
from adapter.mesh import device
from adapter.mesh.reach import own_address
from adapter.runtime.docker.networks import holder_program
from adapter.runtime.stores.mounts import missing as missing_for_stores
from adapter.runtime.volumes.runtime import missing


def need_docker() -> None:
    """A Docker daemon answers at $DOCKER_HOST or the default socket (`make docker` starts one)."""
    _need(_docker_answers(), "no Docker daemon answers; run: make docker")


def need_postgres() -> Path:
    """PostgreSQL's server binaries are here. Returns the folder that holds ``initdb`` and
    ``pg_ctl``.
    """
    found = _postgres_folder()
    _need(found is not None, "PostgreSQL is not installed; run: packaging/debian.sh")
    assert found is not None
    return found


def need_registry() -> None:
    """Distribution is here, as Debian's docker-registry."""
    found = shutil.which("docker-registry")
    _need(found is not None, "docker-registry is not installed; run: packaging/debian.sh")


def need_chromium() -> Path:
    """Chromium is here. Returns its executable."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    _need(found is not None, "Chromium is not installed; run: packaging/debian.sh")
    assert found is not None
    return Path(found)


def need_axe() -> Path:
    """axe-core is here, for the pages' accessibility. Returns its script."""
    found = Path(__file__).parent / "browser" / "node_modules" / "axe-core" / "axe.min.js"
    _need(found.is_file(), "axe-core is not installed; run: make install")
    return found


def need_make() -> Path:
    """make is here. Returns its executable."""
    found = shutil.which("make")
    _need(found is not None, "make is not installed: apt-get install make")
    assert found is not None
    return Path(found)


def need_node() -> Path:
    """Node is here, which `make install` fetches packages with. Returns its executable."""
    found = shutil.which("node")
    _need(found is not None, "Node is not installed; run: packaging/debian.sh")
    assert found is not None
    return Path(found)


def need_second_ledger() -> Path:
    """Another ledger's rules are here, by ``npm ci`` in ``tests/ledger``. Returns the folder."""
    folder = Path(__file__).parent / "ledger"
    there = (folder / "node_modules" / "@cardananium" / "cquisitor-lib").is_dir()
    _need(there, "the second ledger is not installed; run: make install")
    return folder


def need_bubblewrap() -> Path:
    """bubblewrap is here, for the process runtime's sandbox. Returns its executable."""
    found = shutil.which("bwrap")
    _need(found is not None, "bubblewrap is not installed; run: packaging/debian.sh")
    assert found is not None
    return Path(found)


def need_gpu() -> None:
    """An NVIDIA driver answers, and CUDA with it."""
    _need(_gpu_answers(), "no NVIDIA driver answers; run on a machine with a GPU")


def need_mount() -> None:
    """This process may mount a file system (root, and not in a container that forbids it)."""
    _need(_may_mount(), "a file system cannot be mounted here; run as root")


def need_volumes(folder: Path) -> None:
    """Volumes can be made below *folder*: root, ``mkfs.ext4``, loop devices, fscrypt."""
    lacks = missing(folder)
    _need(not lacks, f"this host has no volumes: {lacks}")


def need_interfaces() -> None:
    """This process may make network interfaces."""
    _need(os.geteuid() == 0, "no network interface can be made here; run as root")


def need_mesh() -> str:
    """Meshes can be made here: root, /dev/net/tun and wireguard-go. Returns this host's own address
    in its network, at which its members reach each other.
    """
    lacks = device.missing()
    _need(not lacks, f"this host has no mesh: it lacks {lacks}; run: packaging/debian.sh")
    _need(bool(own_address()), "this host is in no network")
    return own_address()


def need_nats() -> None:
    """Routers can be made here, of network namespaces."""
    lacks = [one for one in ("iptables", "nsenter", "sysctl") if shutil.which(one) is None]
    _need(not lacks, f"no NATs can be made here: {', '.join(lacks)}; run: packaging/debian.sh")


def need_rclone() -> None:
    """The program that mounts stores of clusters is here."""
    _need(shutil.which("rclone") is not None, "rclone is not installed; run: packaging/debian.sh")


def need_stores() -> None:
    """Stores of clusters can be mounted here: root, /dev/fuse and rclone."""
    lacks = missing_for_stores()
    _need(not lacks, f"no store can be mounted here: {lacks}; run: packaging/debian.sh")


def need_s3() -> Path:
    """A server of S3's is here, by ``npm ci`` in ``tests/s3``. Returns its program."""
    need_node()
    found = Path(__file__).parent / "s3" / "node_modules" / "s3rver" / "bin" / "s3rver.js"
    _need(found.is_file(), "s3rver is not installed; run: make install")
    return found


def need_holder() -> None:
    """What holds the networks of members in containers is here."""
    _need(holder_program() is not None, "catatonit is not installed; run: packaging/debian.sh")


def need_devnet() -> None:
    """The embedded ledger can run: mini-racer is installed and the ledger's JavaScript was
    fetched.
    """
    if importlib.util.find_spec("py_mini_racer") is None:
        _need(False, "mini-racer is not installed; run: make install")
    from contracts.devnet.source import LedgerMissing, ledger_source

    try:
        ledger_source()
    except LedgerMissing as missing:
        _need(False, str(missing))


def need_js_clients() -> Path:
    """Node and other people's Cardano clients are here. Returns the folder of their scripts and
    packages.
    """
    folder = Path(__file__).parent / "clients"
    _need(shutil.which("node") is not None, "Node is not installed; run: packaging/debian.sh")
    there = (folder / "node_modules" / "@blockfrost" / "openapi").is_dir()
    _need(there, "the JavaScript clients are not installed; run: make install")
    return folder


def need_api_clients() -> Path:
    """What makes and compiles a TypeScript client of an OpenAPI document is here. Returns the
    folder.
    """
    folder = Path(__file__).parent / "clients"
    bins = folder / "node_modules" / ".bin"
    there = (bins / "openapi-typescript").exists() and (bins / "tsc").exists()
    _need(there, "openapi-typescript is not installed; run: make install")
    return folder


def need_sdk() -> Path:
    """Node is here, and what the TypeScript client needs and is compiled with. Returns its
    folder.
    """
    folder = Path(__file__).parents[1] / "web" / "sdk"
    bins = folder / "node_modules" / ".bin"
    _need(shutil.which("node") is not None, "Node is not installed; run: packaging/debian.sh")
    there = (bins / "openapi-typescript").exists() and (bins / "tsc").exists()
    _need(there, "the TypeScript client's packages are not installed; run: make install")
    return folder


def need_python_generator() -> Path:
    """openapi-python-client is here, in an environment of its own. Returns the folder of its
    programs.
    """
    folder = Path(__file__).parents[1] / ".venv" / "generator" / "bin"
    there = (folder / "openapi-python-client").exists()
    _need(there, "openapi-python-client is not installed; run: make generator")
    return folder


def need_stack() -> Path:
    """torch, Ray and Hivemind are here, in an environment of their own. Returns the folder of it."""
    folder = Path(__file__).parents[1] / ".venv" / "stacks" / "frameworks"
    _need((folder / "installed").exists(), "the frameworks are not installed; run: make stacks")
    return folder.resolve()


def need_commit(commit: str) -> None:
    """*commit* is in this checkout's history, whole (a shallow clone lacks it)."""
    root = Path(__file__).parents[1]
    asked = ["git", "-C", str(root), "cat-file", "-e", f"{commit}^{{tree}}"]
    there = shutil.which("git") is not None and subprocess.run(
        asked, check=False, capture_output=True, timeout=60
    )
    _need(
        there is not False and there.returncode == 0,
        f"the history lacks {commit[:7]}; run: git fetch --unshallow",
    )


def _need(there: bool, reason: str) -> None:
    if there:
        return
    if os.environ.get("TALLY_REQUIRE_ALL") == "1":
        pytest.fail(f"TALLY_REQUIRE_ALL=1 and {reason}", pytrace=False)
    pytest.skip(reason)


@functools.cache
def _gpu_answers() -> bool:
    nvml = Nvml()
    try:
        nvml.open()
        return bool(nvml.inventory())
    except NvmlFault:
        return False
    finally:
        nvml.close()


def _may_mount() -> bool:
    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place],
            capture_output=True,
            check=False,
        )
        if done.returncode == 0:
            subprocess.run(["umount", place], check=True)
        return done.returncode == 0


@functools.cache
def _docker_answers() -> bool:
    if shutil.which("docker") is None:
        return False
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    command = ["docker", "--host", host, "version", "--format", "{{.Server.Version}}"]
    try:
        return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


@functools.cache
def _postgres_folder() -> Path | None:
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += [Path(folder) for folder in sorted(glob.glob("/usr/lib/postgresql/*/bin"))[::-1]]
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    return None
