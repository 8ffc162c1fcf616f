"""The market looks at a rented relay itself, and both sides are told where it sees it otherwise."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import anyio.abc
import httpx
import pytest

from adapter.daemon.transfers import Transfers
from marketplace.domain.protocol import wire
from marketplace.domain.work.parts import Port
from marketplace.domain.work.relay import RelayNeed
from marketplace.gateway import relay_looks
from marketplace.system import SystemClock
from tests.fakes import FakeAdapter, spec, until
from tests.integration.chain.test_relay_probe import PREPROD, Block, Peer, peer
from tests.integration.market.test_faults import adapter, at_market, post
from tests.integration.market.test_ports import Wire
from tests.integration.market.test_spine import quoted, sign, state

NEED = RelayNeed("preprod", 3001, 60_000)


class Host:
    """An adapter's own transfers, to the peer that is its workload."""

    def __init__(self, fake: FakeAdapter, tasks: Any, port: int) -> None:
        self.tasks = tasks
        handle = SimpleNamespace(ports={NEED.port: ("127.0.0.1", port)})
        lease = SimpleNamespace(handle=handle, runs=True)
        runtime = cast(Any, None)  # a port's bytes ask none
        self.transfers = Transfers(
            Wire(fake, tasks), (), lambda _: runtime, lambda _: cast(Any, lease), lambda: ()
        )

    async def __call__(self, message: wire.Message) -> None:
        match message:
            case wire.StreamOpened():
                incoming = self.transfers.open(message)
                if incoming is not None:
                    self.tasks.start_soon(self.transfers.carry, message, incoming)
            case wire.StreamData():
                self.transfers.stream_data(message)
            case wire.StreamTaken():
                self.transfers.stream_taken(message)
            case wire.StreamClosed():
                self.transfers.stream_closed(message)
            case _:
                pass


async def fresh(other: Peer) -> None:
    """A block of now."""
    slot = PREPROD.clock.at(SystemClock().now_ms())
    await other.add(Block(slot, slot))


async def looked(client: httpx.AsyncClient, job: str) -> list[dict[str, Any]]:
    answer = await client.get(f"/v1/jobs/{job}/events", params={"follow": "false"})
    rows = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    told = [httpx.Response(200, text=row).json() for row in rows]
    return [one["detail"] for one in told if one.get("kind") == "LOOKED"]


def test_both_sides_are_told_how_the_market_sees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_looks, "EVERY_S", 0.2)
    monkeypatch.setattr(relay_looks, "SAME_MS", 0)

    async def run() -> None:
        takes = adapter("one", relay_free_ms=3_600_000)
        async with (
            peer() as other,
            at_market(tmp_path, takes) as (client, inside, tasks, one),
        ):
            await fresh(other)
            view, session = await post(client, spec(ports=(Port(NEED.port),), relay=NEED))
            view = await quoted(client, view["id"])
            lease = await sign(client, view, session, os.urandom(32).hex())
            await until(lambda: one.leases[lease].signed)
            one.handler = Host(one, tasks, other.port)
            await one.progress(lease, "STARTED")
            await state(client, view["id"], "RUNNING")
            await one.progress(lease, "AT_TIP")

            async def says(standing: str) -> bool:
                told = await looked(client, view["id"])
                return bool(told) and told[-1]["standing"] == standing

            await until(lambda: says("AT_TIP"))
            # It falls back, and its provider goes on to say that it serves, and bills for it.
            await other.add(Block(PREPROD.clock.at(SystemClock().now_ms()), 1, "to go back from"))
            await other.back(0)
            old = PREPROD.clock.at(SystemClock().now_ms()) - 100
            await other.add(Block(old, old))
            await until(lambda: says("LAGGING"))
            told = (await looked(client, view["id"]))[-1]
            assert told["provider_says"] == "AT_TIP" and "s old" in told["why"]

            def heard() -> list[str]:
                return [
                    m.standing for m in one.asked
                    if isinstance(m, wire.RelayLooked) and m.lease == lease
                ]  # fmt: skip

            await until(lambda: heard()[-1:] == ["LAGGING"])
            assert "AT_TIP" in heard()
            assert (await client.post(f"/v1/jobs/{view['id']}/stop")).status_code == 200
            await until(lambda: not inside.market.relays)

    anyio.run(run)


def test_a_relay_goes_to_none_that_takes_none(tmp_path: Path) -> None:
    async def run() -> None:
        async with at_market(tmp_path, adapter("one")) as (client, _, _, one):
            asked = spec(ports=(Port(NEED.port),), relay=NEED)
            answer = await client.post("/v1/explain", json={"spec": asked.to_wire()})
            assert answer.json()["matches"] is False, answer.text
            assert "lack the label takes=relays" in answer.json()["explain"]["text"]
            assert not [m for m in one.asked if isinstance(m, wire.LeaseProposed)]

    anyio.run(run)
