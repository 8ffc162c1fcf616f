"""Many commands of one purse share its channels: opens are counted on the ledger."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import anyio
import pytest

from marketplace.chain.node.blockfrost import connect
from marketplace.chain.node.submit import OPEN
from marketplace.client.payer import journal as books
from marketplace.client.wallet.chain_wallet import Till
from marketplace.client.wallet.purse import Purse
from tests.e2e.support.embedded import PATIENCE_S, Command, command, tally, until_true
from tests.e2e.test_process import job_file
from tests.requires import need_bubblewrap, need_devnet

pytestmark = pytest.mark.timeout(PATIENCE_S + 1500)
AT_ONCE = 10


def story(folder: Path, tell: Callable[[dict[str, str]], Awaitable[None]], wait_s: float) -> None:
    """*tell* with the environment of a `tally up` without Docker."""
    need_bubblewrap()
    need_devnet()

    async def main() -> None:
        away = {"DOCKER_HOST": f"unix://{folder}/none.sock"}
        started = ("up", "--json", "--home", str(folder / "home"), "--port", "0",
                   "--devnet-port", "0")  # fmt: skip
        with anyio.fail_after(wait_s):
            async with command(*started, env=away) as running:
                await running.until(lambda it: bool(it.out))
                env = {**running.last, **away}
                env.pop("ready")
                await tell(env)
                running.process.terminate()
                assert await running.ended() == 0, str(running)

    anyio.run(main)


async def till(env: dict[str, str]) -> Till:
    phrase = await anyio.Path(env["TALLY_PASSPHRASE_FILE"]).read_text()
    purse = Purse.load(env["TALLY_HOME"], passphrase=phrase.strip())
    return Till(purse, await connect(env["TALLY_CHAIN_URL"]))


async def opens(env: dict[str, str]) -> list[bytes]:
    """The purse's open transactions that are in blocks; all that it sent as such are."""
    mine = await till(env)
    sent = [record.tx_id for record in await mine.log.known() if record.purpose == OPEN]
    for tx_id in sent:
        await until_true(partial(mine.chain.transaction, tx_id), "the open in a block")
    return sent


async def nothing_left(env: dict[str, str]) -> None:
    """Every book's leases are over, no lock is held, and all of it comes home."""
    mine = await till(env)
    for session_vk in books.channels_in(mine.purse.channels):
        journal, loaded = books.Journal.hold(mine.purse.channels, session_vk)
        journal.close()
        assert set(loaded.terms) <= loaded.final and loaded.facts is not None
        assert loaded.facts.open_tx, "a channel that never was"
    done = await tally("channel", "close", "--all", "--yes", "--json", env=env)
    assert done.process.returncode == 0, str(done)
    assert {row["did"] for row in done.last["items"]} == {"ENDED"}, str(done)
    shown = await tally("purse", "show", "--json", env=env)
    assert (shown.last["locked"], shown.last["total"]) == (0, shown.last["balance"]), str(shown)


def good(ran: Command) -> None:
    assert ran.process.returncode == 0, str(ran)
    assert ran.last["reason"] == "COMPLETED", str(ran)


@pytest.mark.nightly  # two: tests/integration/client/test_two_at_once.py
def test_ten_commands_at_once_share_one_channel(tmp_path: Path) -> None:
    async def tell(env: dict[str, str]) -> None:
        small = {"cpu": 0.1, "memory": "64MB"}
        file = job_file(tmp_path, "one", resources=small)
        done: list[Command] = []

        async def one() -> None:
            done.append(await tally("job", "run", file, "--yes", "--json", env=env))

        async with anyio.create_task_group() as all_of_them:
            for _ in range(AT_ONCE):
                all_of_them.start_soon(one)
        for ran in done:
            good(ran)
        assert len({ran.last["job"] for ran in done}) == AT_ONCE
        assert len(await opens(env)) == 1  # one provider
        await nothing_left(env)

    story(tmp_path, tell, PATIENCE_S + 300)


@pytest.mark.nightly
def test_fifty_runs_in_a_row_open_once(tmp_path: Path) -> None:
    async def tell(env: dict[str, str]) -> None:
        file = job_file(tmp_path, "again", resources={"cpu": 0.1, "memory": "64MB"})
        for _ in range(50):
            good(await tally("job", "run", file, "--yes", "--json", env=env))
        assert len(await opens(env)) == 1
        await nothing_left(env)

    story(tmp_path, tell, PATIENCE_S + 1200)
