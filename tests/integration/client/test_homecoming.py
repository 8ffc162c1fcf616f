"""What a purse has, to the lovelace, and how it comes home: kindly, alone, and after the period."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio

from marketplace.client.payer import journal as books
from marketplace.client.payer.journal import Journal
from marketplace.client.wallet.chain_wallet import Till
from marketplace.client.wallet.purse import Purse
from tests.integration.client.test_cli import Shell
from tests.integration.client.test_kept import command, ran
from tests.integration.support.client import World, story, until


async def ledger(world: World, purse: Purse) -> tuple[int, int]:
    """(at its address, in its channels), read from the ledger itself."""
    till = Till(purse, world.chain)
    locked = await world.chain.utxos(till.channels_address())
    return await world.home(purse), sum(utxo.lovelace for utxo in locked)


async def kept(world: World, purse: Purse) -> tuple[bytes, str]:
    """A kept channel that a job ran on; its key and the lease."""
    async with command(world, purse) as market:
        await world.provider.keeps(market)
        lease = await ran(world, market, 1)
        (held,) = market.payers.all
        await until(lambda: held.book.capacity is not None)  # its block is there
        return held.session_vk, lease


async def shown(world: World, shell: Shell, purse: Purse) -> dict[str, Any]:
    """What `purse show` says, once it was compared with the ledger."""
    said = await shell.json("purse", "show")
    free, locked = await ledger(world, purse)
    assert (said["balance"], said["locked"], said["total"]) == (free, locked, free + locked)
    assert sum(row.get("lovelace", 0) for row in said["channels"]) == locked
    return said


def test_a_purse_adds_up_and_its_channels_are_ended_kindly(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        purse, shell = world.purse(), Shell(world)
        channel, lease = await kept(world, purse)
        said = await shown(world, shell, purse)
        (row,) = said["channels"]
        book = books.peek(purse.channels, channel)
        assert row["state"] == "OPEN" and said["owed"] == book.book.signed == 2
        assert row["comes_home"] == row["lovelace"] - 2 and row["holder"] == 0
        assert row["idle_until_ms"] == book.heard_wall_ms + 600_000 and row["running"] == []
        seen = await shell.tally("purse", "show")
        assert "come home, 0.000002 ADA are owed" in seen.stdout and channel.hex() in seen.stdout
        listed = (await shell.json("channel", "list"))["items"]
        assert [one["session_vk"] for one in listed] == [channel.hex()]

        asked = await shell.tally("channel", "close", "--all")  # nobody is there to say yes
        assert asked.returncode == 3 and "NOT_CONFIRMED" in asked.stderr
        assert "its provider is asked, at no cost of yours" in asked.stdout
        held, _ = Journal.hold(purse.channels, channel)  # as a running command does
        left = (await shell.json("channel", "close", "--all", "--yes"))["items"]
        assert [one["did"] for one in left] == ["LEFT"] and "signs for it" in left[0]["why"]
        held.close()
        swept = (await shell.json("channel", "sweep", "--yes"))["items"]
        assert [one["did"] for one in swept] == ["LEFT"] and "kept for" in swept[0]["why"]

        assert book.facts is not None
        free, locked = await ledger(world, purse)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ended, world, channel, book.facts.open_tx, lease)
            done = (await shell.json("channel", "close", "--all", "--yes"))["items"]
            assert [(one["did"], one["why"]) for one in done] == [("ENDED", "")]
        said = await shown(world, shell, purse)
        assert said["total"] == free + locked - 2 and said["locked"] == 0  # no fee of its own
        assert (await shell.json("channel", "list"))["items"] == []

    story(tmp_path, tell)


async def ended(world: World, channel: bytes, open_tx: str, lease: str) -> None:
    """The provider, once it was asked."""
    await until(lambda: world.provider.adapter.ends)
    await world.provider.settle(channel, open_tx, lease)


def test_where_no_market_answers_a_channel_is_closed_and_swept(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        purse, shell = world.purse(), Shell(world)
        channel, _ = await kept(world, purse)
        journal, loaded = Journal.hold(purse.channels, channel)
        assert loaded.facts is not None
        away = {**loaded.facts.to_json(), "market": "http://127.0.0.1:1"}
        journal.write({"k": "channel", **away})
        journal.close()
        done = (await shell.json("channel", "close", "--all", "--yes"))["items"]
        assert [one["did"] for one in done] == ["CLOSING"] and done[0]["tx"]

        async def closing() -> bool:
            rows = (await shell.json("channel", "list"))["items"]
            return [row["state"] for row in rows] == ["CLOSING"]

        await until(closing)
        early = (await shell.json("channel", "sweep", "--yes"))["items"]
        assert [one["did"] for one in early] == ["LEFT"] and "close period" in early[0]["why"]
        world.served.devnet.advance(3_600_000)
        done = (await shell.json("channel", "sweep", "--yes"))["items"]
        assert [one["did"] for one in done] == ["FINISHED"]

        async def home() -> bool:
            return (await ledger(world, purse))[1] == 0

        await until(home)
        said = await shown(world, shell, purse)
        assert said["locked"] == said["owed"] == 0

    story(tmp_path, tell)


def test_a_channel_needs_no_origin_where_the_purse_knows_it(tmp_path: Path) -> None:
    """By its book; and without any, by the purse's own address."""

    async def tell(world: World) -> None:
        purse, shell = world.purse(), Shell(world)
        channel, _ = await kept(world, purse)
        topped = await shell.json("channel", "top-up", channel.hex(), "3 ADA", "--yes")
        assert topped["fee"] > 0
        (purse.channels / f"{channel.hex()}.jsonl").rename(tmp_path / "lost")
        (row,) = (await shell.json("channel", "list"))["items"]
        assert row["origin"] == "" and row["idle_until_ms"] is None
        closed = await shell.json("channel", "close", channel.hex(), "--yes")
        assert closed["tx"]
        unknown = await shell.tally("channel", "close", "ab" * 32, "--yes")
        assert unknown.returncode == 3 and "CHANNEL_UNKNOWN" in unknown.stderr
        both = await shell.tally("channel", "close", channel.hex(), "--all", "--yes")
        assert both.returncode == 2

    story(tmp_path, tell)
