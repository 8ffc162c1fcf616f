"""Transactions that spend channels, made on the devnet, and what its face says of each.

The odd stream's settlements (:mod:`tests.integration.support.odd_stream`), and beside them those
that somebody would write to lead a reader astray. ``python -m tests.integration.support.landings``
writes ``tests/golden/landings.json``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import httpx

from contracts.devnet.transaction import OutRef as Place
from marketplace.chain.actions.session import CLOSE_WITHIN_MS, pay, settle_planned
from marketplace.chain.build import plans
from marketplace.chain.build.balancing import Plan, assemble
from marketplace.chain.build.plans import Batch, Move
from marketplace.chain.encoding import cursor, plutus, txbytes
from marketplace.chain.encoding.address import lenient_bytes
from marketplace.chain.encoding.datum import read_stage, stage_bytes
from marketplace.chain.encoding.lenient import is_locked
from marketplace.chain.encoding.utxo import Utxo
from marketplace.chain.node.submit import MemoryLog, send
from marketplace.chain.transaction.outputs import Out
from marketplace.chain.transaction.signing import Unsigned
from marketplace.domain.money.channel import Close, Open
from tests.ground import pay_before
from tests.integration.support.chain import ADA, BY_HAND, Live, Provider, World, run
from tests.integration.support.odd import rewritten
from tests.integration.support.odd_stream import Stream
from tests.integration.support.second_reader import FINISH, FINISH_CLAIMING, History, plays
from tests.unit.support.landings import GOLDEN, python_says

BEGINNING_MS = 1_800_000_000_000  # the same in every run of a seed
SHORT, LONG = bytes([1, 2, 3]), bytes([0x80, 1, 2, 3])
"""One pointer (CIP-19) in two lengths."""


def asked(name: str, url: str, tx: str) -> list[dict[str, Any]]:
    """``{name, tx, mine, answer}`` for each channel that transaction *tx* spends."""
    answer = (
        httpx.get(f"{url}/txs/{tx}/utxos", trust_env=False, timeout=60).raise_for_status().json()
    )
    spent = [i for i in answer["inputs"] if not i["collateral"] and not i["reference"]]
    mine = [i for i in spent if is_locked(lenient_bytes(i["address"]))]
    for row in (*answer["inputs"], *answer["outputs"]):
        row.pop("consumed_by_tx", None)
    return [
        {"name": name, "tx": tx, "mine": f"{i['tx_hash']}#{i['output_index']}", "answer": answer}
        for i in mine
    ]


def odd(seed: int, count: int) -> list[dict[str, Any]]:
    """Those of an odd stream of *count* settlements, each with the place that it truly went to."""
    found: list[dict[str, Any]] = []

    async def story(world: World) -> None:
        snapshot = await world.chain.snapshot(world.desk("x").scripts)
        deployed, _ = snapshot.deployed
        reference = [Place(one.tx_id.hex(), one.index) for one in (deployed.settle, deployed.stub)]
        stream = Stream(world.devnet, Random(seed), snapshot.params, (reference[0], reference[1]))
        stream.fund(6)
        for _ in range(3):
            stream.open(5)
        stream.mint()
        while stream.sent < count:
            if stream.sent % 10 == 0:
                stream.open(3)
            if stream.sent % 15 == 0 or not stream.kinds["made to be read in two ways"]:
                stream.read_in_two_ways()
            for chan in list(stream.book.chans.values()):
                if chan.origin is not None and stream.rng.random() < 0.5:
                    stream.served[chan.origin] = max(stream.served.get(chan.origin, 0), 2 * ADA)
            stream.settle()
            stream.mint()
        history = History()
        with world.devnet.reading() as view:
            history.follow(view)
            made = {tx: whole.tx for tx in stream.ran if (whole := view.tx(tx)) is not None}
        for tx, whole in made.items():
            for one in asked("odd", world.served.url, tx):  # type: ignore[attr-defined]
                at, _, index = one["mine"].partition("#")
                mine = Place(at, int(index))
                [(position, kind)] = plays(history.locked(whole), whole, mine, stream.ran[tx])
                found.append({**one, "truth": [position, kind in (FINISH_CLAIMING, FINISH)]})
        print(dict(stream.kinds))

    run(story, block_ms=BY_HAND, clock=lambda: BEGINNING_MS)
    return found


async def copy_before(world: World, live: Live, lovelace: int) -> tuple[Utxo, Utxo]:
    """The channel, and a stranger's copy of it whose place comes before."""
    real = (await world.view(live)).utxo
    body = Out(real.address, lovelace, datum=stage_bytes(read_stage(real.datum or b"")))
    return real, await pay_before(world.desk("thief"), body, real.ref)


async def claim_all(
    world: World, live: Live, provider: Provider, utxos: Sequence[Utxo], cum: int
) -> tuple[str, list[Utxo]]:
    """One voucher claimed from every one of *utxos*, by the thief; the channel outputs that are
    left.
    """
    desk = world.desk("thief")
    snapshot, funds, fresh = await desk.look()
    step = plans.claim_step(live.voucher(cum), cum)
    payouts = {provider.payout: provider.payout_address}
    planned = plans.settle(snapshot, funds, Batch(tuple(Move(u, step) for u in utxos), payouts))
    done = await settle_planned(desk, planned, {**fresh}, "all")
    return done.sent.tx_id.hex(), [u for u in done.sent.made if u.datum is not None]


async def _sent(world: World, plan: Plan, change: Any = None) -> str:
    desk = world.desk("consumer")
    snapshot, funds, fresh = await desk.look()
    unsigned = await desk.finish(assemble(snapshot, plan, funds), fresh)
    if change is not None:
        unsigned = change(rewritten(unsigned, snapshot.params, unsigned.redeemers or b"\x80"))
    sent = await send(world.chain, MemoryLog(), unsigned.sign(desk.wallet.signer), "odd")
    return sent.tx_id.hex()


def _longer(at: bytes, again: bytes) -> Any:
    """The output at *at* written as at *again*."""

    def change(unsigned: Unsigned) -> Unsigned:
        fields = dict(txbytes.map_items(unsigned.body))
        head = b"\x58" + bytes([len(at)])
        assert head + at in fields[1]
        fields[1] = fields[1].replace(head + at, b"\x58" + bytes([len(again)]) + again)
        body = plutus.head(5, len(fields))
        body += b"".join(plutus.head(0, k) + v for k, v in fields.items())
        return replace(unsigned, body=body)

    return change


async def _closing(world: World, live: Live) -> Plan:
    """A Close of the channel."""
    until = (await world.chain.tip()).time_ms + CLOSE_WITHIN_MS
    view = await world.view(live)
    batch = Batch((Move(view.utxo, Close()),), signers=(live.consts.consumer_vkh,), until_ms=until)
    snapshot, funds, _ = await world.desk("consumer").look()
    return plans.settle(snapshot, funds, batch).draft.plan


async def _beside_a_pointer(world: World, live: Live, refund: bool) -> str:
    """Closed beside a neighbour at a pointer's address, whose output writes the pointer in another
    length.
    """
    view, plan = await world.view(live), await _closing(world, live)
    [closed] = plan.outputs
    at = b"\x50" + view.utxo.address[1:29] + SHORT
    adapter = world.wallet("consumer").signer.key_hash
    consts = replace(live.consts, session_vk=b"\x07" * 32, adapter_vkh=adapter)
    body = stage_bytes(Open(consts, 0))
    made = await pay(world.desk("consumer"), [Out(at, 5 * ADA, datum=body)])
    beside = next(u for u in made.made if u.address == at)
    home = b"\x40" + consts.consumer_vkh
    left = Out(home + SHORT, 5 * ADA) if refund else Out(at, 6 * ADA, datum=body)
    step = b"\xd8\x7b\x80" if refund else b"\xd8\x7c\x81\x1a\x00\x0f\x42\x40"
    both = sorted((view.utxo, beside), key=lambda u: u.ref)
    plan = replace(
        plan,
        outputs=tuple(left if u is beside else closed for u in both),
        channels=tuple(both),
        steps=b"\x82" + b"".join(step if u is beside else b"\xd8\x7d\x80" for u in both),
    )
    assert len(cursor.items(plan.steps or b"")) == 2
    change = _longer(home + SHORT, home + LONG) if refund else _longer(at, at[:29] + LONG)
    return await _sent(world, plan, change)


async def _copies_behind(world: World, live: Live) -> str:
    """Topped up by an ADA, with two copies behind: as it was, and Closing."""
    utxo, [closed] = (await world.view(live)).utxo, (await _closing(world, live)).outputs
    grown = Out(utxo.address, utxo.lovelace + ADA, datum=utxo.datum)
    plan = Plan(
        outputs=(grown, Out(utxo.address, utxo.lovelace, datum=utxo.datum), closed),
        channels=(utxo,),
        steps=b"\x81\xd8\x7c\x81\x1a\x00\x0f\x42\x40",
        signers=(live.consts.consumer_vkh,),
    )
    return await _sent(world, plan)


def adversaries() -> list[dict[str, Any]]:
    """What was written to lead a reader astray, with the places of the channel that is served
    alone.
    """
    found: list[dict[str, Any]] = []

    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("consumer", 400 * ADA)
        world.fund("thief", 400 * ADA)
        url: str = world.served.url  # type: ignore[attr-defined]
        lives = await world.open("consumer", provider, [40 * ADA] * 5)

        async def note(name: str, live: Live, before: Utxo, tx: str) -> None:
            after = (await world.finder.find(live.session.verify_key, live.ref)).utxo  # type: ignore[union-attr]
            row = next(one for one in asked(name, url, tx) if one["mine"] == str(before.ref))
            assert after.ref.tx_id.hex() == tx
            found.append({**row, "truth": [after.ref.index, False]})

        real, copy = await copy_before(world, lives[0], 14 * ADA)
        tx, _ = await claim_all(world, lives[0], provider, (real, copy), 10 * ADA)
        await note("claimed beside a copy that comes first", lives[0], real, tx)
        real, copy = await copy_before(world, lives[1], 40 * ADA)
        tx, _ = await claim_all(world, lives[1], provider, (real, copy), 10 * ADA)
        await note("claimed beside a copy of the same amount", lives[1], real, tx)
        real = (await world.view(lives[2])).utxo
        await note("copies behind", lives[2], real, await _copies_behind(world, lives[2]))
        for live, refund in ((lives[3], False), (lives[4], True)):
            real = (await world.view(live)).utxo
            name = f"closed beside a pointer's {'refund' if refund else 'top-up'}"
            await note(name, live, real, await _beside_a_pointer(world, live, refund))

    run(story, clock=lambda: BEGINNING_MS)
    return found


def judged(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """*rows* with every place that our reader sees, the true one among them."""
    for row, places in zip(rows, python_says(rows), strict=True):
        assert places is not None and tuple(row["truth"]) in places, row
        row["places"] = places
    return rows


if __name__ == "__main__":
    made = judged([*adversaries(), *odd(7, 45)])
    answers = {row["tx"]: row.pop("answer") for row in made}
    lines = [json.dumps(row) for row in made]
    texts = [f"{json.dumps(tx)}: {json.dumps(answer)}" for tx, answer in answers.items()]
    GOLDEN.write_text(
        '{"answers": {\n' + ",\n".join(texts) + '\n}, "rows": [\n' + ",\n".join(lines) + "\n]}\n"
    )
