"""A provider at home: its own network, its own Docker, behind a router that translates addresses and
lets nobody in. Three network namespaces, of which the market's is this machine's own.

    market (this machine)  198.51.100.5 --- .6  box  10.77.0.1 --- .2  home: dockerd, adapter
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.abc

from marketplace.cli.embedded.containers import Containers
from marketplace.cli.embedded.product import Embedded
from marketplace.cli.embedded.supervise import Part
from marketplace.client.sdk.market import Market
from tests.e2e.support.embedded import PATIENCE_S, World, embedded
from tests.ports import free_port
from tests.requires import need_devnet, need_docker

OUTSIDE: Final = "198.51.100.5"
"""RFC 5737: nobody's. Not .1, the way to which every adapter asks for its own address."""
BOX: Final = "198.51.100.6"
HOME: Final = "10.77.0.2"


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


def within(namespace: str) -> tuple[str, ...]:
    """Before a command: in this network, and otherwise on this machine (``ip netns exec`` would
    mount another /sys, without the control groups that Docker needs).
    """
    return ("nsenter", f"--net=/run/netns/{namespace}")


@contextmanager
def outside() -> Generator[None]:
    """Nobody else on this machine has :data:`OUTSIDE` meanwhile."""
    with (Path(tempfile.gettempdir()) / "tally-outside.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def network() -> Generator[str]:
    """The name of the home's namespace."""
    tag = f"{os.getpid() % 100_000:x}"
    box, home, up, down = f"tally-box-{tag}", f"tally-home-{tag}", f"tu{tag}", f"td{tag}"
    try:
        for name in (box, home):
            _run("ip", "netns", "add", name)
            _run("ip", "-n", name, "link", "set", "lo", "up")
        _run("ip", "link", "add", up, "type", "veth", "peer", "name", "wan", "netns", box)
        _run("ip", "-n", box, "link", "add", down, "type", "veth", "peer", "name", "eth0",
             "netns", home)  # fmt: skip
        _run("ip", "address", "add", f"{OUTSIDE}/30", "dev", up)
        _run("ip", "link", "set", up, "up")
        for name, link, address in (
            (box, "wan", f"{BOX}/30"), (box, down, "10.77.0.1/24"), (home, "eth0", f"{HOME}/24"),
        ):  # fmt: skip
            _run("ip", "-n", name, "address", "add", address, "dev", link)
            _run("ip", "-n", name, "link", "set", link, "up")
        _run("ip", "-n", home, "route", "add", "default", "via", "10.77.0.1")
        # Also who knows its address, and the way there, is not let in.
        _run("ip", "route", "add", "10.77.0.0/24", "via", BOX)
        inside = within(box)
        _run(*inside, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        masked = ("-s", "10.77.0.0/24", "-o", "wan", "-j", "MASQUERADE")
        _run(*inside, "iptables", "-t", "nat", "-A", "POSTROUTING", *masked)
        for chain in ("INPUT", "FORWARD"):
            answers = ("-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED", "-j", "ACCEPT")
            _run(*inside, "iptables", "-A", chain, *answers)
            _run(*inside, "iptables", "-P", chain, "DROP")
        _run(*inside, "iptables", "-A", "FORWARD", "-i", down, "-j", "ACCEPT")
        yield home
    finally:
        for name in (home, box):  # their links go with them
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


@contextmanager
def docker(namespace: str) -> Generator[str]:
    """A Docker of its own in *namespace*: its address."""
    folder = Path(tempfile.mkdtemp(prefix="tally-home-"))
    address, log = f"unix://{folder}/docker.sock", folder / "log"
    with log.open("wb") as file:
        daemon = subprocess.Popen(
            [
                *within(namespace), "dockerd", "--host", address,
                "--data-root", str(folder / "data"), "--exec-root", str(folder / "exec"),
                "--pidfile", str(folder / "pid"),
            ],
            stdout=file, stderr=file, start_new_session=True,
        )  # fmt: skip
        try:
            for _ in range(300):
                assert daemon.poll() is None, log.read_text()[-2000:]
                asked = subprocess.run(
                    ["docker", "--host", address, "version"], capture_output=True, check=False
                )
                if asked.returncode == 0:
                    break
                time.sleep(0.2)
            yield address
        finally:
            daemon.terminate()
            daemon.wait(60)
            # Layers are mounts of the daemon's own, which it has let go of by now.
            shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def relay(port: int) -> AsyncGenerator[None]:
    """The market's *port* of loopback, from outside: what its operator's proxy would be."""

    async def carry(there: anyio.abc.SocketStream) -> None:
        with contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with there, await anyio.connect_tcp("127.0.0.1", port) as here:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_pour, there, here, tasks)
                    tasks.start_soon(_pour, here, there, tasks)

    listener = await anyio.create_tcp_listener(local_host=OUTSIDE, local_port=port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, carry)
        yield
        tasks.cancel_scope.cancel()


async def _pour(
    one: anyio.abc.SocketStream, other: anyio.abc.SocketStream, tasks: anyio.abc.TaskGroup
) -> None:
    with contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        async for data in one:
            await other.send(data)
    tasks.cancel_scope.cancel()


class BehindNat(Embedded):
    """Its adapter runs in the namespace that ``TALLY_TEST_HOME`` names."""

    def part(self, name: str, *arguments: str) -> Part:
        made = super().part(name, *arguments)
        if name == "adapter":
            made.argv = [*within(os.environ["TALLY_TEST_HOME"]), *made.argv]
        if name == "market":
            made.env = {**made.env, "TALLY_ALSO_URL": _outside(self.port)}
        return made

    async def start_adapter(
        self, name: str = "adapter", market: str = "", chain_url: str = ""
    ) -> Part:
        path = self.chain_url.split("://", 1)[1].partition("/")[2]
        door = f"{_outside(self.devnet_port)}/{path}"
        return await super().start_adapter(name, market or _outside(self.port), chain_url or door)


def _outside(port: int) -> str:
    return f"http://{OUTSIDE}:{port}"


@asynccontextmanager
async def home(*ports: int) -> AsyncGenerator[None]:
    """A home that can dial *ports* of this machine's loopback, at ``OUTSIDE``; what is started
    meanwhile uses its Docker.
    """
    before = {name: os.environ.get(name) for name in ("DOCKER_HOST", "TALLY_TEST_HOME")}
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(outside())
        namespace = stack.enter_context(network())
        address = stack.enter_context(docker(namespace))
        for port in ports:
            await stack.enter_async_context(relay(port))
        os.environ.update(DOCKER_HOST=address, TALLY_TEST_HOME=namespace)
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


def at_home(folder: Path, tell: Callable[[World], Awaitable[None]], **more: Any) -> None:
    """*tell* in a fresh world whose provider is there."""
    need_docker()
    need_devnet()
    ports = free_port(), free_port()
    more |= {"port": ports[0], "devnet_port": ports[1]}

    async def main() -> None:
        with anyio.fail_after(PATIENCE_S):
            async with (
                home(*ports),
                embedded(folder, BehindNat, **more) as place,
                Containers() as docker,
                Market(
                    place.market_url, wallet=await place.purse("consumer"),
                    chain_url=place.chain_url,
                ) as market,
            ):  # fmt: skip
                await tell(World(place, docker, market, folder))

    anyio.run(main)
