"""A terminal in a running workload, through the market: for the job's owner alone."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, ConnectionClosedOK, InvalidStatus
from websockets.typing import Subprotocol

from adapter.daemon.transfers import MOST_SHELLS, Transfers
from adapter.runtime.terminal import LocalTerminal
from marketplace.client.sdk.terminal import TerminalLost, terminal
from marketplace.domain.protocol import codec, wire
from marketplace.gateway import byte_stream
from tests.fakes import FakeAdapter, seed, spec, until
from tests.integration.market.test_faults import adapter, at_market, post
from tests.integration.market.test_forward import http_of
from tests.integration.market.test_ports import Wire
from tests.integration.market.test_spine import quoted, sign, state
from tests.integration.support.market import sign_in


class Host:
    """Terminals of this machine, as if they were a workload's: the adapter's own transfers."""

    def __init__(self, fake: FakeAdapter, tasks: Any) -> None:
        self.tasks, self.opened = tasks, list[wire.ShellOpened]()
        lease = SimpleNamespace(handle=SimpleNamespace(ports={}), runs=True, job=spec())
        self.transfers = Transfers(
            Wire(fake, tasks), (), lambda _: cast(Any, self), lambda _: cast(Any, lease), lambda: ()
        )

    async def terminal(
        self, _handle: object, command: tuple[str, ...], rows: int, columns: int
    ) -> LocalTerminal:
        return LocalTerminal(command, rows, columns)

    async def __call__(self, message: wire.Message) -> None:
        match message:
            case wire.ShellOpened():
                self.opened.append(message)
                incoming = self.transfers.open(message)
                if incoming is not None:
                    self.tasks.start_soon(self.transfers.carry, message, incoming)
            case wire.ShellSized():
                await self.transfers.sized(message)
            case wire.StreamData():
                self.transfers.stream_data(message)
            case wire.StreamTaken():
                self.transfers.stream_taken(message)
            case wire.StreamClosed():
                self.transfers.stream_closed(message)
            case _:
                pass


@asynccontextmanager
async def running(
    folder: Path,
) -> AsyncGenerator[tuple[httpx.AsyncClient, FakeAdapter, Host, str]]:
    async with at_market(folder, adapter("one")) as (client, inside, tasks, one):
        view, session = await post(client, spec())
        view = await quoted(client, view["id"])
        lease = await sign(client, view, session, os.urandom(32).hex())
        await until(lambda: one.leases[lease].signed)
        one.handler = host = Host(one, tasks)
        await one.progress(lease, "STARTED")
        await state(client, view["id"], "RUNNING")
        for line in inside.parts.hub.hub.live.values():
            line.ticked = True  # as of one that has been paid: it is not read at a stranger's pace
        yield client, one, host, view["id"]


def address(client: httpx.AsyncClient, job: str, asked: str = "command=sh") -> str:
    base = str(client.base_url).rstrip("/").replace("http", "ws", 1)
    return f"{base}/v1/jobs/{job}/shell?{asked}"


def test_somebody_sits_at_a_terminal(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as (client, _, host, job):
            http = http_of(client)
            async with terminal(http, job, ("sh",), 30, 90) as seat:
                shown = b""
                await seat.write(b"stty size; echo $((6 * 7))\n")
                while b"30 90" not in shown or b"\n42" not in shown:
                    shown += await seat.read()
                await seat.resize(50, 132)
                await anyio.sleep(0.1)  # a size and what is typed go by different messages
                await seat.write(b"stty size\n")
                while b"50 132" not in shown:
                    shown += await seat.read()
                await seat.write(b"exit\n")
                while await seat.read():
                    pass
            much = "yes | head -c 5000000; echo; echo all"
            async with terminal(http, job, ("sh", "-c", much), 24, 80) as seat:
                heard = 0
                while data := await seat.read():
                    heard += len(data)
                assert heard > 5_000_000
            assert [one.command for one in host.opened] == [["sh"], ["sh", "-c", much]]
            await http.aclose()

    anyio.run(run)


def test_there_are_only_so_many_and_each_ends_with_its_caller(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as (client, _, host, job):
            http = http_of(client)
            async with anyio.create_task_group() as tasks:
                ready = 0

                async def sit() -> None:
                    nonlocal ready
                    async with terminal(http, job, ("sh", "-c", "echo on; sleep 600"), 9, 9) as at:
                        await at.read()
                        ready += 1
                        await anyio.sleep_forever()

                for _ in range(MOST_SHELLS):
                    tasks.start_soon(sit)
                await until(lambda: ready == MOST_SHELLS)
                async with terminal(http, job, ("sh",), 24, 80) as one_more:
                    with pytest.raises(TerminalLost, match="too many"):
                        await one_more.read()
                tasks.cancel_scope.cancel()
            await until(lambda: not host.transfers._streams)  # pyright: ignore[reportPrivateUsage] -- what it holds
            async with terminal(http, job, ("echo", "again"), 24, 80) as seat:
                assert b"again" in await seat.read()
            await http.aclose()

    anyio.run(run)


def test_nobody_else_sits_there(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as (client, one, host, job):
            mine = client.headers["Authorization"]
            token = mine.removeprefix("Bearer ")
            async with httpx.AsyncClient(base_url=client.base_url, timeout=30) as other:
                await sign_in(other, seed("stranger"))
                theirs = other.headers["Authorization"]
            key = {"name": "x", "verbs": ["read"], "expires_at_ms": 4 * 10**12}
            reading = (await client.post("/v1/keys", json=key)).json()["secret"]
            at = address(client, job)
            for where, headers, status, code in (
                (at, {}, 401, "UNAUTHENTICATED"),
                (at, {"Cookie": f"tally_session={token}"}, 401, "UNAUTHENTICATED"),
                (f"{at}&token={token}", {}, 401, "UNAUTHENTICATED"),
                (at, {"Authorization": theirs}, 404, "NOT_FOUND"),
                (at, {"Authorization": f"Bearer {reading}"}, 403, "FORBIDDEN"),
                (address(client, "job_none"), {"Authorization": mine}, 404, "NOT_FOUND"),
            ):
                assert await refusal(where, headers) == (status, code), (where, headers)
            for odd in ("", "command=sh&rows=0", "command=sh&columns=100000", "command=sh&rows=x"):
                status, _ = await refusal(address(client, job, odd), {"Authorization": mine})
                assert status in (403, 422), odd
            assert host.opened == []
            for word in ("text", '{"rows": 5}', '{"rows": 0, "columns": 80}', '{"rows": "5"}'):
                async with connect(at, additional_headers={"Authorization": mine}) as socket:
                    await socket.send(word)
                    with pytest.raises(ConnectionClosed) as closed:
                        while True:
                            await socket.recv()
                    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1003
            numbering = one.socket.client.numbering
            assert codec.SHELL in numbering.agreed

    anyio.run(run)


def test_an_adapter_of_before_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tuple(one for one in codec.CAPABILITIES if one != codec.SHELL)
    monkeypatch.setattr(codec, "CAPABILITIES", before)

    async def run() -> None:
        async with running(tmp_path) as (client, _, host, job):
            headers = {"Authorization": client.headers["Authorization"]}
            assert await refusal(address(client, job), headers) == (409, "NO_SHELL")
            assert host.opened == []

    anyio.run(run)


def test_a_page_says_first_whose_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser puts no header of its own into a websocket: its first message is the token, and
    neither a cookie nor the address counts.
    """
    monkeypatch.setattr(byte_stream, "TOKEN_S", 0.5)

    async def run() -> None:
        async with running(tmp_path) as (client, _, host, job):
            token = client.headers["Authorization"].removeprefix("Bearer ")
            async with httpx.AsyncClient(base_url=client.base_url, timeout=30) as other:
                await sign_in(other, seed("stranger"))
                theirs = other.headers["Authorization"].removeprefix("Bearer ")
            cookie, spoken = {"Cookie": f"tally_session={token}"}, [Subprotocol("tally.terminal")]

            async def told(first: str | bytes | None, where: str) -> tuple[int, str]:
                async with connect(where, subprotocols=spoken, additional_headers=cookie) as socket:
                    if first is not None:
                        await socket.send(first)
                    with pytest.raises(ConnectionClosed) as closed:
                        await socket.recv()
                said = closed.value.rcvd
                assert said is not None
                return said.code, said.reason.partition(":")[0]

            at = address(client, job)
            for first, where, code in (
                (json.dumps({"token": theirs}), at, "NOT_FOUND"),
                (json.dumps({"token": token}), address(client, "job_none"), "NOT_FOUND"),
                (json.dumps({"token": "x" * 64}), at, "UNAUTHENTICATED"),
                (json.dumps({"token": ""}), f"{at}&token={token}", "UNAUTHENTICATED"),
                (json.dumps({"token": "x" * 201}), at, "UNAUTHENTICATED"),
                ('{"rows": 5, "columns": 5}', at, "UNAUTHENTICATED"),
                (token.encode(), at, "UNAUTHENTICATED"),
                (None, at, "UNAUTHENTICATED"),
            ):
                assert await told(first, where) == (1008, code), first
            assert host.opened == []

            async with connect(
                address(client, job, "command=sh&rows=7&columns=70"), subprotocols=spoken
            ) as seat:
                assert seat.subprotocol == "tally.terminal"
                await seat.send(json.dumps({"token": token}))
                await seat.send(b"stty size; exit\n")
                shown = b""
                with pytest.raises(ConnectionClosedOK):
                    while True:
                        shown += await seat.recv(decode=False)
            assert b"7 70" in shown
            # A port is nobody's but a program's, as before.
            port = at.replace("/shell?command=sh", "/ports/8888/stream")
            with pytest.raises(InvalidStatus) as refused:
                async with connect(port, subprotocols=spoken):
                    pass
            assert refused.value.response.status_code == 401

    anyio.run(run)


async def refusal(where: str, headers: dict[str, str]) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as refused:
        async with connect(where, additional_headers=headers):
            pass
    answer = refused.value.response
    try:
        return answer.status_code, str(json.loads(answer.body or b"{}").get("code", ""))
    except ValueError:
        return answer.status_code, ""
