"""What the doctor looks at: files, commands, NVML, the Docker daemon, the market.

Each is a field, so that a test can provoke a finding exactly where it would arise.
"""

from __future__ import annotations

import email.utils
import json
import os
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from adapter.devices.nvml.nvml import Nvml
from adapter.runtime.docker.door import connect
from adapter.runtime.meshing import lacks_for_mesh
from adapter.runtime.stores.mounts import missing as missing_for_stores
from adapter.runtime.volumes.runtime import missing
from marketplace.domain.errors import Fault
from marketplace.keystore import Keystore


class ProbeFailed(Fault):
    """Something that the doctor asked did not answer."""

    code = "PROBE_FAILED"


@dataclass(frozen=True, slots=True)
class DoctorConfig:
    """The parts of the adapter's configuration that the doctor judges."""

    state: Path = Path("/var/lib/tally")
    market: str = ""
    chain_url: str = ""
    project_id: str = ""
    payout: str = ""
    key: Path | None = None
    docker_host: str = ""
    runtimes: tuple[str, ...] = ("docker",)
    allow: tuple[str, ...] = ()
    priced: tuple[str, ...] = ()
    gpu_request: str = "cdi"
    expect_gpu: bool = True
    try_container: bool = True
    volumes: bool = False
    mesh: str = ""
    stores: bool = False


def run_command(line: Sequence[str]) -> tuple[int, str]:
    """Exit status and output of a command, within 4 s; 127 when there is no such command."""
    if shutil.which(line[0]) is None:
        return 127, f"{line[0]}: not found"
    try:
        done = subprocess.run(line, capture_output=True, timeout=4, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 126, str(error)
    return done.returncode, (done.stdout + done.stderr).decode(errors="replace")


def market_time(url: str) -> float:
    """The market's clock, seconds since 1970, from the Date of any answer."""
    plain = url.replace("ws://", "http://").replace("wss://", "https://")
    try:
        with urllib.request.urlopen(plain, timeout=4) as answer:  # the owner's own configuration
            stamp = answer.headers.get("Date")
    except urllib.error.HTTPError as error:
        stamp = error.headers.get("Date")
    except (OSError, ValueError) as error:
        raise ProbeFailed(str(error)) from error
    if stamp is None:
        raise ProbeFailed("the answer has no Date")
    return email.utils.parsedate_to_datetime(stamp).timestamp()


def ask_chain(config: DoctorConfig, path: str) -> Any:
    """What the chain's door (Blockfrost's API) answers to *path*; None for 404."""
    url = config.chain_url.rstrip("/") + path
    asked = urllib.request.Request(url, headers={"project_id": config.project_id})
    try:
        with urllib.request.urlopen(asked, timeout=4) as answer:  # the owner's own configuration
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise ProbeFailed(f"status {error.code}") from error
    except (OSError, ValueError) as error:
        raise ProbeFailed(str(error)) from error


def stored_keys(folder: Path) -> dict[str, bytes]:
    """Public keys (32 bytes) by name; none where no keystore is yet."""
    store = Keystore(folder)
    return {one.name: one.verify_key for one in store.list()} if store.exists else {}


def resolves(name: str) -> bool:
    """True when the name has an address."""
    try:
        return bool(socket.getaddrinfo(name, None))
    except OSError:
        return False


def owns(address: str) -> bool:
    """Whether the IPv4 *address* is one of this host's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as tried:
        try:
            tried.bind((address, 0))
        except OSError:
            return False
        return True


def docker_facts(host: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The daemon's info and version; RuntimeFault when it cannot be reached."""
    client = connect(host, 4)
    try:
        return cast("Mapping[str, Any]", client.info()), cast("Mapping[str, Any]", client.version())
    finally:
        client.close()


def disk(path: Path) -> tuple[int, int, int]:
    """Free MiB, and free and total inodes, where *path* is or will be."""
    while not path.exists():
        path = path.parent
    stat = os.statvfs(path)
    return stat.f_bavail * stat.f_frsize >> 20, stat.f_favail, stat.f_files


@dataclass
class World:
    """The host as the doctor sees it.  *root* is prefixed to every absolute path."""

    config: DoctorConfig = field(default_factory=DoctorConfig)
    root: Path = Path("/")
    command: Callable[[Sequence[str]], tuple[int, str]] = run_command
    nvml: Callable[[], Nvml] = Nvml
    nvml_deadline_s: float = 4.0
    docker: Callable[[str], tuple[Mapping[str, Any], Mapping[str, Any]]] = docker_facts
    market_time: Callable[[str], float] = market_time
    chain: Callable[[DoctorConfig, str], Any] = ask_chain
    keys: Callable[[Path], dict[str, bytes]] = stored_keys
    resolves: Callable[[str], bool] = resolves
    disk: Callable[[Path], tuple[int, int, int]] = disk
    uid: Callable[[], int] = os.geteuid
    container: Callable[[DoctorConfig], list[str]] | None = None
    volumes: Callable[[Path], str] = missing
    mesh: Callable[[Collection[str]], str] = lacks_for_mesh
    stores: Callable[[], str] = missing_for_stores
    owns: Callable[[str], bool] = owns

    def path(self, absolute: str) -> Path:
        """The path of a host file."""
        return self.root / absolute.lstrip("/")

    def text(self, absolute: str) -> str:
        """A host file's text; empty when it cannot be read."""
        try:
            return self.path(absolute).read_text(errors="replace")
        except OSError:
            return ""
