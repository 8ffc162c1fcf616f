"""Several processes of one purse at one time: each opens its channel, and none is refused for what
another one did.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import anyio
import anyio.streams.buffered
import pytest

from contracts.devnet.pace import Pace
from marketplace.chain.channels.finder import ChannelView
from marketplace.chain.encoding.datum import read_stage
from marketplace.chain.encoding.utxo import OutRef
from marketplace.chain.node.blockfrost import connect
from marketplace.client.wallet import one_open
from marketplace.client.wallet.chain_wallet import Till
from marketplace.client.wallet.purse import Purse
from marketplace.client.wallet.spending import PurseBusy, spending
from marketplace.domain.money.transaction import TxState
from marketplace.keystore import Keystore
from tests.integration.client.test_cli import JOB, Shell
from tests.integration.support.chain import ADA, BY_HAND, World, run
from tests.integration.support.client import PASSPHRASE, story
from tests.integration.support.client import World as Clients
from tests.integration.support.door import Answer, door
from tests.integration.support.payer import paying
from tests.unit.support.adapter import core_job, offer, terms_for

ROUNDS = 20
AMOUNT = 3 * ADA


class Opener:
    """A process that opens one channel each time it is told to."""

    def __init__(self, process: anyio.abc.Process) -> None:
        self.process = process
        assert process.stdin is not None and process.stdout is not None
        self._out = anyio.streams.buffered.BufferedByteReceiveStream(process.stdout)

    async def line(self) -> str:
        return (await self._out.receive_until(b"\n", 4096)).decode()

    async def go(self) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send(b"\n")


@asynccontextmanager
async def opener(world: World, home: Path, *more: str) -> AsyncGenerator[Opener]:
    command = [sys.executable, "-m", "tests.integration.support.opener", str(home)]
    async with await anyio.open_process([*command, world.served.url, *more]) as process:
        made = Opener(process)
        assert await made.line() == "ready"
        try:
            yield made
        finally:
            if process.returncode is None:
                process.kill()


def purse_of(world: World, home: Path, *coins: int) -> Purse:
    Keystore(home / "keys").make(PASSPHRASE, drawn=True)  # no test is about it
    purse = Purse.create(home, passphrase=PASSPHRASE)
    for lovelace in coins:
        world.devnet.faucet(purse.address(mainnet=False), lovelace)
    world.devnet.mint()
    return purse


def terms_of(purse: Purse) -> Any:
    return terms_for(
        offer(), core_job(), session=purse.new_session(), consumer_vkh=purse.signer.key_hash
    )


async def there(till: Till, count: int) -> list[OutRef]:
    """The channels of the purse once a block has *count* of them."""
    with anyio.fail_after(120):
        while True:
            found = [u.ref for outputs in (await till.outputs()).values() for u in outputs]
            if len(found) >= count:
                return found
            await anyio.sleep(0.1)


@pytest.mark.parametrize("coins", [(400 * ADA,), (60 * ADA,) * 7], ids=["one coin", "seven coins"])
def test_two_processes_that_open_at_one_instant_both_have_their_channel(
    tmp_path: Path, coins: tuple[int, ...]
) -> None:
    async def story(world: World) -> None:
        purse = purse_of(world, tmp_path, *coins)
        answers: list[str] = []
        async with opener(world, tmp_path) as one, opener(world, tmp_path) as two:
            for _ in range(ROUNDS):
                await one.go()
                await two.go()
                answers += [await one.line(), await two.line()]
        assert [said for said in answers if said.startswith("failed")] == []
        found = await there(Till(purse, world.chain), 2 * ROUNDS)
        assert sorted(map(str, found)) == sorted(answers)

    run(story, block_ms=1_000)


@pytest.mark.prove
def test_two_commands_at_once_both_run_their_job(tmp_path: Path) -> None:
    async def tell(world: Clients) -> None:
        world.served.devnet.pace = Pace(1_000)
        purse = world.purse()
        world.served.devnet.mint()
        shell, job = Shell(world), tmp_path / "job.yaml"
        job.write_text(JOB.replace("cpu: 1", "cpu: 0.5"))
        done: list[CompletedProcess[str]] = []

        async def command() -> None:
            done.append(await shell.tally("job", "run", str(job), "--yes", "--detach"))

        async with paying(shell):
            for _ in range(3):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(command)
                    tasks.start_soon(command)
        assert [(one.returncode, one.stderr) for one in done if one.returncode] == []
        shown = (await shell.json("purse", "show"))["channels"]
        opened = [bytes.fromhex(channel["open_tx"]) for channel in shown]
        assert len(set(opened)) == 6
        world.served.devnet.mint()
        found = await there(Till(purse, world.chain), 6)
        assert {ref.tx_id for ref in found} == set(opened)

    story(tmp_path, tell)


def test_what_a_killed_process_logged_and_did_not_send_is_sent_by_the_next(tmp_path: Path) -> None:
    """The next one pays with the change of a transaction that no node has seen."""

    async def story(world: World) -> None:
        purse = purse_of(world, tmp_path, 100 * ADA)
        till = Till(purse, world.chain)
        async with opener(world, tmp_path, "die") as victim:
            await victim.go()
            await victim.process.wait()
        [left] = await till.log.pending()
        assert left.state is TxState.BUILT
        async with opener(world, tmp_path) as next_one:
            await next_one.go()
            answer = await next_one.line()
        world.devnet.mint()
        found = {str(ref) for ref in await there(till, 2)}
        assert found == {answer, f"{left.tx_id.hex()}#0"}

    run(story, block_ms=BY_HAND)


@pytest.mark.parametrize("way", ["close", "leave"])
def test_a_way_out_of_a_channel_is_paid_with_what_a_killed_process_left_unsent(
    tmp_path: Path, way: str
) -> None:
    """All of the purse's money is the change of a transaction that no node has seen."""

    async def story(world: World) -> None:
        purse = purse_of(world, tmp_path, 100 * ADA)
        till, terms = Till(purse, world.chain), terms_of(purse)
        origin = await till.open(terms, AMOUNT)
        world.devnet.mint()
        await till.follow()
        view = await till.look(terms.session_vk, origin)
        assert isinstance(view, ChannelView)
        async with opener(world, tmp_path, "die") as victim:
            await victim.go()
            await victim.process.wait()
        if way == "close":
            await till.close_view(view)
        else:
            assert await till.leave(view) is not None
        world.devnet.mint()
        found = await till.outputs()
        stages = [type(read_stage(u.datum or b"")) for rows in found.values() for u in rows]
        assert sorted(kind.__name__ for kind in stages) == ["Closing", "Open"]

    run(story, block_ms=BY_HAND)


def copy_of(purse: Purse, home: Path) -> Purse:
    """The same keys in another home: what one spends is not in the other's log."""
    shutil.copytree(purse.home / "keys", home / "keys")
    return Purse.load(home, passphrase=PASSPHRASE)


async def mined(world: World, done: Callable[[], bool]) -> None:
    """A block now and then until *done*."""
    while not done():
        await anyio.sleep(0.3)
        world.devnet.mint()


@pytest.mark.parametrize("coins", [(60 * ADA,), (60 * ADA,) * 2], ids=["one coin", "two coins"])
def test_an_open_whose_coins_another_home_took_is_built_anew_once_a_block_shows_it(
    tmp_path: Path, coins: tuple[int, ...]
) -> None:
    async def story(world: World) -> None:
        purse = purse_of(world, tmp_path / "one", *coins)
        other = copy_of(purse, tmp_path / "two")
        terms, till = terms_of(purse), Till(purse, world.chain)
        first = await Till(other, world.chain).open(terms_of(other), AMOUNT)
        refs: list[OutRef] = []

        async def open_it() -> None:
            refs.append(await till.open(terms, AMOUNT))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(open_it)
            await mined(world, lambda: bool(refs))
        world.devnet.mint()
        assert set(await there(till, 2)) == {first, *refs}
        [record] = [r for r in await till.log.known() if r.state is TxState.EXPIRED]
        assert one_open.opens(record, terms.session_vk) is not None  # the refused one

    run(story, block_ms=BY_HAND)


def test_a_refusal_of_what_the_node_has_already_is_no_second_open(tmp_path: Path) -> None:
    """A door that sends twice hears `missing inputs` of the second: the first one waits."""

    async def story(world: World) -> None:
        purse = purse_of(world, tmp_path, 60 * ADA, 60 * ADA)
        till, terms = Till(purse, world.chain), terms_of(purse)
        with door(world.served.url) as between:

            def twice(_method: str, path: str, forward: Any) -> Answer:
                if path.endswith("/tx/submit"):
                    forward()
                answer: Answer = forward()
                return answer

            between.keeper = twice
            refs: list[OutRef] = []

            async def open_it() -> None:
                refs.append(await Till(purse, await connect(between.url)).open(terms, AMOUNT))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(open_it)
                await mined(world, lambda: bool(refs))
        world.devnet.mint(2)
        assert await there(till, 1) == refs

    run(story, block_ms=BY_HAND)


def test_a_process_that_holds_a_purse_and_stands_still_is_said(tmp_path: Path) -> None:
    async def story() -> None:
        log = tmp_path / "transactions" / "purse-42.jsonl"
        async with spending(log):
            with pytest.raises(PurseBusy, match=r"for 0\.1 s"):
                async with spending(log, 0.1):
                    pass
        async with spending(log, 0.1):
            pass

    anyio.run(story)
