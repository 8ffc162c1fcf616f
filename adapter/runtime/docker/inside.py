"""What runs inside a container beside its workload: a command, bounded, or a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import anyio.abc
import docker.errors

from adapter.core.workload import ExecResult, RuntimeFault, RuntimeRefused
from adapter.runtime.calls import in_thread
from adapter.runtime.docker.door import map_docker, streamed
from adapter.runtime.terminal import KIND, READ, size

_HEAD: Final = 64 * 1024
_WITHIN_S: Final = 30.0


def run(
    api: Any, container: Any, folder: str, command: tuple[str, ...], timeout_ms: int, limit: int
) -> ExecResult:
    """It is killed when it passes its time or its output bound. Blocking."""
    made = api.exec_create(container.id, list(command), user=_user(container), workdir=folder)["Id"]
    killer = threading.Timer(timeout_ms / 1000, _kill, (api, made))
    killer.daemon = True
    kept = bytearray()
    try:
        with streamed(api.exec_start(made, stream=True)) as pieces:
            killer.start()
            for piece in pieces:
                kept += piece[: limit - len(kept)]
                if len(kept) >= limit:
                    _kill(api, made)
    finally:
        killer.cancel()
    code = api.exec_inspect(made)["ExitCode"]
    return ExecResult(137 if code is None else int(code), bytes(kept))


def _user(container: Any) -> str:
    return str(container.labels.get("tally.user", "65534"))


def _kill(api: Any, made: str) -> None:
    with contextlib.suppress(docker.errors.DockerException, OSError):  # gone already
        pid = int(api.exec_inspect(made).get("Pid") or 0)
        if pid > 1:
            os.kill(pid, signal.SIGKILL)


class DockerTerminal:
    """A program at a terminal in a container. Its bytes go over a connection of their own, which
    the daemon hands over once it has answered (Docker Engine API, "Exec: start an exec instance").
    """

    def __init__(self, api: Any, made: str, line: anyio.abc.ByteStream, first: bytes) -> None:
        self._api, self._made, self._line, self._first = api, made, line, first

    @staticmethod
    async def open(
        host: str, api: Any, container: Any, folder: str, command: tuple[str, ...], rows: int,
        columns: int,
    ) -> DockerTerminal:  # fmt: skip
        """*host*: the daemon's address. RuntimeRefused where that cannot be dialled plainly."""
        made = await _asked(
            "terminal",
            lambda: api.exec_create(
                container.id, list(command), user=_user(container), workdir=folder, stdin=True,
                tty=True, environment={"TERM": KIND},
            )["Id"],
        )  # fmt: skip
        line = await _dial(host)
        try:
            with anyio.fail_after(_WITHIN_S):
                first = await _start(line, str(made), size(rows, columns))
        except TimeoutError as error:
            await line.aclose()
            raise RuntimeFault("terminal: no answer from the Docker daemon") from error
        except BaseException:
            await line.aclose()
            raise
        opened = DockerTerminal(api, str(made), line, first)
        await opened.resize(rows, columns)
        return opened

    async def read(self) -> bytes:
        """What it shows; empty once it has ended."""
        if self._first:
            first, self._first = self._first, b""
            return first
        try:
            return await self._line.receive(READ)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return b""

    async def write(self, data: bytes) -> None:
        """What is typed there."""
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._line.send(data)

    async def resize(self, rows: int, columns: int) -> None:
        """Its screen has another size."""
        height, width = size(rows, columns)
        with contextlib.suppress(RuntimeFault):  # it has ended meanwhile
            await _asked("resize", lambda: self._api.exec_resize(self._made, height, width))

    async def end(self) -> None:
        """Hang up: Docker would let the program run on."""
        with anyio.CancelScope(shield=True):
            await self._line.aclose()
            await anyio.to_thread.run_sync(_kill, self._api, self._made)


async def _asked(what: str, ask: Callable[[], Any]) -> Any:
    def guarded() -> Any:
        with map_docker(what):
            return ask()

    return await in_thread(what, guarded, _WITHIN_S)


async def _dial(host: str) -> anyio.abc.ByteStream:
    place = urlsplit(host)
    try:
        if place.scheme == "unix":
            return await anyio.connect_unix(place.path)
        if place.scheme in ("tcp", "http") and not os.environ.get("DOCKER_TLS_VERIFY"):
            return await anyio.connect_tcp(place.hostname or "", place.port or 2375)
    except OSError as error:
        raise RuntimeFault(f"terminal: {error}") from error
    raise RuntimeRefused("a terminal needs a Docker daemon on this machine, or one without TLS")


async def _start(line: anyio.abc.ByteStream, made: str, screen: tuple[int, int]) -> bytes:
    """The daemon's leave; what came of the program with it."""
    body = json.dumps({"Detach": False, "Tty": True, "ConsoleSize": screen}).encode()
    head = (
        f"POST /exec/{made}/start HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\n"
        f"Upgrade: tcp\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    await line.send(head.encode() + body)
    heard = b""
    while b"\r\n\r\n" not in heard and len(heard) < _HEAD:
        try:
            heard += await line.receive(READ)
        except anyio.EndOfStream:
            break
    answer, _, first = heard.partition(b"\r\n\r\n")
    status = answer.split(b"\r\n", 1)[0].split(b" ")
    if len(status) < 2 or status[1] not in (b"101", b"200"):
        raise RuntimeFault(f"terminal: Docker said {answer[:100]!r} {first[:200]!r}")
    return first
