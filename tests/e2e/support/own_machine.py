"""A machine of the consumer's own: a network namespace from which the market and public hosts are
reached, and WireGuard in it as anybody has it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from adapter.mesh.netns import run
from tests.e2e.support.behind_nat import BOX, OUTSIDE, outside, within
from tests.e2e.support.embedded import TALLY

CALLS: Final = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3])) as way:
    print(way.recv(99).decode(), end="")
"""


@dataclass
class OwnMachine:
    """In namespace *name*; *link*: its WireGuard interface."""

    name: str
    link: str
    _device: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def tally(self) -> tuple[str, ...]:
        """The command there."""
        return (*within(self.name), *TALLY)

    def takes(self, file: Path) -> None:
        """The file, by ``wg setconf``; what wg-quick does beside it is done as it would."""
        fresh = self._device is None
        if fresh:
            self._device = subprocess.Popen(
                [*within(self.name), "wireguard-go", "-f", self.link],
                env={**os.environ, "LOG_LEVEL": "error"},
            )
        door = Path("/var/run/wireguard", f"{self.link}.sock")
        deadline = time.monotonic() + 5
        while not door.exists():
            assert time.monotonic() < deadline, "wireguard-go does not start"
            time.sleep(0.02)
        bare = file.with_name("stripped")
        bare.write_text(run("wg-quick", "strip", str(file)))
        self.inside("wg", "setconf", self.link, str(bare))
        said = dict(
            line.split(" = ", 1) for line in file.read_text().splitlines() if " = " in line
        )  # fmt: skip
        if fresh:
            self.inside("ip", "address", "add", said["Address"], "dev", self.link)
            self.inside("ip", "link", "set", self.link, "mtu", said["MTU"], "up")
        for line in file.read_text().splitlines():
            if line.startswith("AllowedIPs = "):
                to = line.removeprefix("AllowedIPs = ")
                self.inside("ip", "route", "replace", to, "dev", self.link)

    def inside(self, *line: str) -> str:
        """What a command says there."""
        return run(*within(self.name), *line)

    def hears(self, address: str, port: int, wait_s: float = 10.0) -> str:
        """What is said at that port when it is called from there; empty for nothing."""
        done = subprocess.run(
            [*within(self.name), sys.executable, "-c", CALLS, address, str(port), str(wait_s)],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        return done.stdout

    def end(self) -> None:
        """No WireGuard any more."""
        if self._device is not None:
            self._device.terminate()
            self._device.wait(10)


@contextlib.contextmanager
def own_machine() -> Iterator[OwnMachine]:
    """One, beside this machine."""
    tag = f"{os.getpid() % 100_000:x}"
    name, up = f"tally-own-{tag}", f"to{tag}"
    made = OwnMachine(name, f"tg{tag}")
    with outside():
        try:
            run("ip", "netns", "add", name)
            run("ip", "link", "add", up, "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "address", "add", f"{OUTSIDE}/30", "dev", up)
            run("ip", "link", "set", up, "up")
            for line in (
                ("link", "set", "lo", "up"), ("address", "add", f"{BOX}/30", "dev", "eth0"),
                ("link", "set", "eth0", "up"), ("route", "add", "default", "via", OUTSIDE),
            ):  # fmt: skip
                run("ip", "-n", name, *line)
            yield made
        finally:
            made.end()
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
