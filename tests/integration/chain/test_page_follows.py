"""The console's own module beside our reader, on one chain: which output is the channel, and whose
a second one is.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from marketplace.chain.actions.session import close_channel, finish_channels, pay, top_up
from marketplace.chain.channels.finder import ChannelEnded, ChannelFinder, ChannelView
from marketplace.chain.encoding.datum import stage_bytes
from marketplace.chain.encoding.utxo import Utxo
from marketplace.chain.transaction.outputs import Out
from marketplace.domain.money.channel import Open
from tests.integration.support.chain import ADA, DAY_MS, Live, Provider, World, run
from tests.integration.support.landings import claim_all, copy_before, judged, odd
from tests.requires import need_node
from tests.unit.support.landings import page_says

ROOT = Path(__file__).parents[3]
PAGE = """
import { readFileSync } from "node:fs";
const { facts, seconds, standing } = await import("./web/assets/chain/chain.js");
const { url, id, openTx, index, payer } = JSON.parse(readFileSync(0, "utf8"));
const channel = await standing({ url }, id, openTx);
const others = channel && (await seconds({ url }, id, channel, new Set([payer])));
const at = channel && { ref: channel.ref, lovelace: channel.lovelace, claimed: channel.claimed, open: channel.open };
console.log(JSON.stringify({ at, others, facts: await facts({ url }, { session_vk: id, open_tx: openTx, index, receipts: [], voucher: null }, "", true) }, (_, value) => (typeof value === "bigint" ? Number(value) : value)));
"""


async def _page(world: World, live: Live) -> dict[str, Any]:
    """What the page makes of the channel."""
    asked = {
        "url": world.served.url,  # type: ignore[attr-defined]
        "id": live.session.verify_key.hex(),
        "openTx": live.ref.tx_id.hex(),
        "index": live.ref.index,
        "payer": live.consts.consumer_vkh.hex(),
    }
    command = [str(need_node()), "--input-type=module", "-e", PAGE]
    done = await anyio.run_process(command, cwd=ROOT, input=json.dumps(asked).encode(), check=False)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


async def _same(world: World, live: Live) -> dict[str, Any]:
    """Page and reader say the same of it; what the page says."""
    said = await _page(world, live)
    finder = ChannelFinder(world.chain, world.desk("x").scripts)
    seen = await finder.find(live.session.verify_key, live.ref)
    told = said["facts"]
    if isinstance(seen, ChannelEnded):
        assert said["at"] is None and told["ended"]
        figures = (seen.funded, seen.claimed, seen.refunded, 0)
    else:
        assert isinstance(seen, ChannelView) and not told["ended"]
        at = {"ref": str(seen.utxo.ref), "lovelace": seen.amount, "claimed": seen.claimed}
        assert said["at"] == {**at, "open": not seen.closing}
        figures = (sum(f.amount for f in seen.fundings), seen.claimed, 0, seen.amount)
    assert figures == tuple(told[name] for name in ("funded", "claimed", "refunded", "held"))
    return said


def test_the_page_follows_the_channel_whose_copy_was_claimed_from_beside_it() -> None:
    """From its open to its end: claimed with a copy before it, topped up, closed, finished."""

    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("consumer", 200 * ADA)
        world.fund("thief", 400 * ADA)
        [live] = await world.open("consumer", provider, [40 * ADA])
        await _same(world, live)
        both: list[Utxo] = list(await copy_before(world, live, 14 * ADA))
        _, left = await claim_all(world, live, provider, both, 10 * ADA)
        said = await _same(world, live)
        assert [str(one.ref) for one in left].index(said["at"]["ref"]) == 1  # the copy came first
        await top_up(world.desk("consumer"), await world.view(live), 5 * ADA)
        await _same(world, live)
        both = sorted([left[0], (await world.view(live)).utxo], key=lambda u: u.ref)
        await claim_all(world, live, provider, both, 11 * ADA)
        said = await _same(world, live)
        assert said["others"] == []  # a stranger's copy is no second channel
        await close_channel(world.desk("consumer"), await world.view(live))
        assert (await _same(world, live))["at"]["open"] is False
        world.devnet.advance(2 * DAY_MS)
        await finish_channels(world.desk("consumer"), [(await world.view(live), None)], {})
        assert (await _same(world, live))["facts"]["refunded"] == 34 * ADA

    run(story)


def test_a_second_output_counts_if_this_wallet_paid_for_it() -> None:
    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("consumer", 200 * ADA)
        world.fund("thief", 400 * ADA)
        [live] = await world.open("consumer", provider, [40 * ADA])
        address = (await world.view(live)).utxo.address
        out = Out(address, 20 * ADA, datum=stage_bytes(Open(live.consts, 0)))
        stranger = await pay(world.desk("thief"), [out])
        assert (await _same(world, live))["others"] == []
        own = await pay(world.desk("consumer"), [out])
        [second] = (u for u in own.made if u.datum is not None)
        assert (await _same(world, live))["others"] == [str(second.ref)]
        copies = [u for u in stranger.made if u.datum is not None]
        three = sorted([*copies, second, (await world.view(live)).utxo], key=lambda u: u.ref)
        _, left = await claim_all(world, live, provider, three, 9 * ADA)
        here = (await world.view(live)).utxo.ref
        [moved] = (u for u, was in zip(left, three, strict=True) if was is second)
        assert moved.ref != here
        # A settlement of all three leaves none with one origin alone: those that may be ours are
        # told.
        assert str(moved.ref) in (await _same(world, live))["others"]

    run(story)


@pytest.mark.prove
def test_the_page_reads_an_odd_stream_as_our_reader_does() -> None:
    """As ``tests/golden/landings.json``, on transactions that nobody has looked at before."""
    rows = judged(odd(11, 120))
    for row, places in zip(rows, page_says(rows), strict=True):
        assert places == row["places"], (row["tx"], row["mine"])
    assert len(rows) > 200
