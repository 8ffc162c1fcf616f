"""``kill -9`` of every part in the middle of a job, and between what it wrote and the
acknowledgement.

Restarted, the job goes on or ends with a stated reason; nothing is counted twice, nothing is billed
beyond Docker's own times, and the invoice agrees with the ledger to the lovelace.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest

from marketplace.domain.protocol import wire
from marketplace.domain.work.lease import EndReason
from tests.e2e.support.embedded import (
    PATIENCE_S,
    Command,
    World,
    check_against_docker,
    command,
    job_file,
    newest_job,
    settled_bill,
    story,
    tally,
    until_ended,
)
from tests.e2e.support.wire import Door, Message, door

pytestmark = pytest.mark.timeout(PATIENCE_S + 120)
STATED = frozenset(EndReason)
LINES = 8


@asynccontextmanager
async def running_job(
    world: World, market: str = "", lines: int = LINES
) -> AsyncGenerator[Command]:
    """``tally job run``, in the middle of its job when the block begins."""
    file = job_file(world.folder, world.place.image, lines)
    env = world.place.environment | ({"TALLY_MARKET": market} if market else {})
    async with command(
        "job", "run", str(file), "--yes", "--json", "--keep", "0", env=env
    ) as client:
        await client.until(lambda it: "line 2" in it.err)
        yield client


@asynccontextmanager
async def payer_daemon(world: World, market: str = "") -> AsyncGenerator[Command]:
    """``tally payer run``, serving; *market* is the name under which its purse knows the market."""
    env = world.place.environment | ({"TALLY_MARKET": market} if market else {})
    async with command("payer", "run", "--json", env=env) as payer:
        await payer.until(lambda it: bool(it.out))
        yield payer


async def reckon(world: World, kills: int = 1) -> None:
    """The story's end: a stated reason, an invoice that holds, Docker's times, the CLI's own
    word.
    """
    name = (await newest_job(world))["id"]
    view = await until_ended(world, name)
    assert view["reason"] in STATED, view
    bill = await settled_bill(world, name)
    for line in bill.lines:
        assert line.owed == line.unit_ms * line.rate_micro // 10**9
    assert sum(total.claimed or 0 for total in bill.channels) == bill.owed
    await check_against_docker(world, bill, slack_ms=1000 + 1000 * kills)
    said = await tally("invoice", name, "--verify", env=world.place.environment)
    assert said.process.returncode == 0, str(said)


# ---- in the middle of a job --------------------------------------------------------------------


async def _server_killed(world: World, name: str) -> None:
    async with running_job(world) as client:
        await world.kill(name)
        await world.restart(name)
        await client.ended()
        assert client.last["reason"] in STATED, str(client)
    await reckon(world)


async def _client_killed(world: World) -> None:
    async with running_job(world, lines=12) as client:
        client.process.kill()
        await client.ended()
        async with payer_daemon(world):
            await until_ended(world, (await newest_job(world))["id"])
            await reckon(world)


def test_the_adapter_is_killed_in_mid_job(tmp_path: Path) -> None:
    story(tmp_path, lambda world: _server_killed(world, "adapter"))


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["market", "devnet"])
def test_a_server_is_killed_in_mid_job(tmp_path: Path, name: str) -> None:
    story(tmp_path, lambda world: _server_killed(world, name))


@pytest.mark.nightly
def test_the_payer_is_killed_in_mid_job(tmp_path: Path) -> None:
    story(tmp_path, _client_killed)


# ---- between the journal's write and its acknowledgement ---------------------------------------


def _after(count: int, up: bool, kind: type[Message]) -> Callable[[bool, Message], bool]:
    """Hold the *count*-th message of *kind* in that direction."""
    seen = [0]

    def holds(upwards: bool, message: Message) -> bool:
        if upwards == up and isinstance(message, kind):
            seen[0] += 1
        return seen[0] >= count and upwards == up and isinstance(message, kind)

    return holds


def _acknowledgement_of(kind: type[Message], up: bool) -> Callable[[bool, Message], bool]:
    """Hold the first acknowledgement that follows a message of *kind*, which went *up* or down."""
    seen = [False]

    def holds(upwards: bool, message: Message) -> bool:
        seen[0] = seen[0] or (upwards == up and isinstance(message, kind))
        return seen[0] and upwards != up and isinstance(message, wire.Ack)

    return holds


ADAPTER: dict[str, Callable[[], Callable[[bool, Message], bool]]] = {
    # its receipt is in its journal, and the market never saw it
    "receipt": lambda: _after(1, True, wire.ReceiptSent),
    # the voucher is in its journal, and the market does not know that it is
    "voucher": lambda: _acknowledgement_of(wire.VoucherSent, False),
}


async def _held(door: Door) -> None:
    with anyio.fail_after(120):
        await door.held.wait()


@pytest.mark.prove
@pytest.mark.parametrize("what", list(ADAPTER))
def test_the_adapter_is_killed_before_the_acknowledgement(tmp_path: Path, what: str) -> None:
    async def tell(world: World) -> None:
        async with door(world.place.market_url) as between:
            await world.place.parts["adapter"].stop()
            await world.restart("adapter", market=between.url())
            async with running_job(world) as client:
                between.hold(ADAPTER[what]())
                await _held(between)
                await world.kill("adapter")
                await between.cut(shut=False)
                await world.restart("adapter", market=between.url())
                await client.ended()
            await reckon(world)

    story(tmp_path, tell)


@pytest.mark.prove
def test_the_market_is_killed_before_the_acknowledgement(tmp_path: Path) -> None:
    """The receipt is in its store; the adapter never hears so, and sends it again."""

    async def tell(world: World) -> None:
        async with door(world.place.market_url) as between:
            await world.place.parts["adapter"].stop()
            await world.restart("adapter", market=between.url())
            async with running_job(world) as client:
                between.hold(_acknowledgement_of(wire.ReceiptSent, True))
                await _held(between)
                await world.kill("market")
                await between.cut(shut=False)
                await world.restart("market")
                await client.ended()
            await reckon(world)

    story(tmp_path, tell)


@pytest.mark.prove
def test_the_payer_is_killed_before_the_acknowledgement(tmp_path: Path) -> None:
    """Its voucher is in its book and never left; the daemon of the same purse goes on from the
    book.
    """

    async def tell(world: World) -> None:
        async with (
            door(world.place.market_url) as between,
            running_job(world, market=between.url(), lines=12) as client,
        ):
            between.hold(_after(1, True, wire.VoucherSent))
            await _held(between)
            client.process.kill()
            await client.ended()
            await between.cut(shut=False)
            async with payer_daemon(world, between.url()):
                await reckon(world)

    story(tmp_path, tell)


@pytest.mark.nightly
def test_the_devnet_is_killed_before_the_acknowledgement(tmp_path: Path) -> None:
    """The channel's last transaction is on its disk; the adapter that sent it never hears so."""

    async def tell(world: World) -> None:
        parts = urlsplit(world.place.chain_url)
        async with door(world.place.chain_url) as between:
            await world.place.parts["adapter"].stop()
            await world.restart("adapter", chain_url=between.url(parts.path))
            async with running_job(world) as client:
                between.hold_answer(f"POST {parts.path}/tx/submit".encode())
                await _held(between)
                await world.kill("devnet")
                await between.cut(shut=False)
                await world.restart("devnet")
                await client.ended()
            await reckon(world)

    story(tmp_path, tell)
