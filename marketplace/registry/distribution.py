"""Distribution's program (Debian's ``docker-registry``, 2.8): its configuration, and its process.

It listens on a Unix socket of its own, so that nothing reaches it but the door, and checks the
market's tokens itself. It has no cache of what is there: one would remember what a collection took.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import structlog
import yaml
from anyio.abc import Process

from marketplace.disk import private_folder
from marketplace.domain.errors import Fault
from marketplace.registry.tokens import ISSUER

PROGRAM: Final = "docker-registry"
_PURGE: Final = {"enabled": True, "age": "2h", "interval": "30m", "dryrun": False}
_READY_S: Final = 20.0
_COLLECT_S: Final = 3600.0
_log = structlog.get_logger("registry")


class RegistryFailed(Fault):
    """Distribution does not run."""

    code = "REGISTRY_FAILED"
    remedy = "its last words stand above; `apt install docker-registry` brings it on Debian"


@dataclass(frozen=True)
class Served:
    """What a registry serves: *name* (``host[:port]``, as images are called), the market's token
    address *realm* and its *certificate* (PEM); all its files lie under *root*.
    """

    root: Path
    name: str
    realm: str
    certificate: str
    socket: Path  # where Distribution listens: short, as the name of a Unix socket must be

    @property
    def storage(self) -> Path:
        """Where Distribution keeps repositories and blobs."""
        return self.root / "storage" / "docker" / "registry" / "v2"

    @property
    def config(self) -> Path:
        """Distribution's configuration."""
        return self.root / "config.yml"

    def write(self) -> None:
        """The folder and the configuration."""
        private_folder(self.root)
        trusted = self.root / "market.crt"
        trusted.write_text(self.certificate)
        for name in ("repositories", "blobs"):
            (self.storage / name).mkdir(parents=True, exist_ok=True)
        made = {
            "version": "0.1",
            "log": {"level": "warn", "accesslog": {"disabled": True}},
            "storage": {
                "filesystem": {"rootdirectory": str(self.root / "storage")},
                "delete": {"enabled": True},
                "maintenance": {"uploadpurging": _PURGE},
            },
            "http": {
                "net": "unix", "addr": str(self.socket), "relativeurls": True,
                "secret": secrets.token_hex(32),
            },
            "auth": {
                "token": {
                    "realm": self.realm, "service": self.name, "issuer": ISSUER,
                    "rootcertbundle": str(trusted),
                }
            },
        }  # fmt: skip
        self.config.touch(mode=0o600)
        self.config.write_text(yaml.safe_dump(made, sort_keys=False))


def program() -> str:
    """Its path; RegistryFailed where it is not installed."""
    found = shutil.which(PROGRAM)
    if found is None:
        raise RegistryFailed(f"{PROGRAM} is not installed")
    return found


def _die_with_us() -> list[str]:
    """Has the kernel end Distribution when this process is killed (prctl(2), PR_SET_PDEATHSIG)."""
    found = shutil.which("setpriv")
    return [found, "--pdeathsig", "KILL", "--"] if found is not None else []


@asynccontextmanager
async def running(served: Served) -> AsyncGenerator[Process]:
    """Distribution, listening; it ends with the block. RegistryFailed."""
    served.write()
    served.socket.unlink(missing_ok=True)
    process = await anyio.open_process(
        [*_die_with_us(), program(), "serve", str(served.config)],
        stdin=-3,  # DEVNULL
        stdout=None,
        stderr=None,
    )
    try:
        with anyio.move_on_after(_READY_S):
            while not served.socket.exists() and process.returncode is None:  # noqa: ASYNC110
                await anyio.sleep(0.05)
        if process.returncode is not None or not served.socket.exists():
            raise RegistryFailed(f"{PROGRAM} did not start")
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(10):
                await process.wait()
            if process.returncode is None:
                process.kill()
                await process.wait()
            await process.aclose()


async def collect(served: Served) -> None:
    """Delete the blobs that no manifest names. Nothing may be pushed meanwhile: Distribution's
    collector takes what was uploaded for a manifest that is still to come.
    """
    try:
        with anyio.fail_after(_COLLECT_S):
            done = await anyio.run_process(
                [program(), "garbage-collect", str(served.config)], check=False
            )
    except TimeoutError:
        raise RegistryFailed(f"nothing was collected within {_COLLECT_S:g} s") from None
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        raise RegistryFailed(f"nothing was collected: {words[-1][-300:] if words else '?'}")
    _log.info("collected")
