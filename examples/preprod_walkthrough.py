#!/usr/bin/env python3
"""A channel's whole life on a public test network, by a URL and a project id alone.

    export TALLY_CHAIN_URL=https://cardano-preprod.blockfrost.io/api
    export TALLY_PROJECT_ID=preprod...
    python examples/preprod_walkthrough.py            # prints an address to fund, waits for it
    python examples/preprod_walkthrough.py --close    # also closes one, waits out its period

Against a devnet add ``--faucet http://127.0.0.1:PORT/devnet/faucet``. Keys are made in ``--keys``
(a folder readable by its owner only) and kept, so that a second run uses the same money. These are
keys of a test network: never send anything of worth to them. Every line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx

from marketplace.chain.actions.session import (
    Desk,
    claim,
    close_channel,
    deploy,
    finish_channels,
    open_channels,
    top_up,
)
from marketplace.chain.build.plans import Opening
from marketplace.chain.build.wallet import Wallet
from marketplace.chain.channels.finder import (
    ChannelEnded,
    ChannelFinder,
    ChannelView,
    channel_capacity,
)
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding.utxo import OutRef
from marketplace.chain.errors import ChainFault, ChannelUnknown
from marketplace.chain.node.blockfrost import ChainReader, connect
from marketplace.chain.node.follow import Follower
from marketplace.chain.node.submit import FileLog
from marketplace.domain.errors import TallyError
from marketplace.domain.keys import Signer
from marketplace.domain.money.address import Credential
from marketplace.domain.money.channel import Closing, Consts
from marketplace.domain.money.voucher import Voucher

ADA = 1_000_000
NEEDED = 80 * ADA
DEPOSIT = 15 * ADA


def say(step: str, **facts: Any) -> None:
    """One line."""
    print(json.dumps({"step": step, **facts}), flush=True)


def signer(folder: Path, name: str) -> Signer:
    """The key *name*, made on first use."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{name}.seed"
    if not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(32))
    return Signer(path.read_bytes())


@dataclass
class Walk:
    """Who takes part: one wallet that pays for everything, one adapter, one payout address."""

    chain: ChainReader
    keys: Path
    poll_s: float

    def __post_init__(self) -> None:
        stake = signer(self.keys, "stake").key_hash
        self.wallet = Wallet(signer(self.keys, "wallet"), self.chain.mainnet, stake)
        self.adapter = signer(self.keys, "adapter")
        payout = signer(self.keys, "payout").key_hash
        self.payout = addresses.key_address(payout, None, self.chain.mainnet)
        self.log = FileLog(self.keys / f"transactions-{self.chain.magic}.jsonl")
        self.desk = Desk(self.chain, self.wallet, "", self.log)
        self.follower = Follower(self.chain, self.log)
        self.finder = ChannelFinder(self.chain, self.desk.scripts)

    async def funded(self, faucet: str) -> None:
        """Wait until the wallet can pay for the walk."""
        text = addresses.to_text(self.wallet.address)
        if faucet:
            async with httpx.AsyncClient(timeout=30) as http:
                answer = await http.post(faucet, json={"address": text, "lovelace": 2 * NEEDED})
                answer.raise_for_status()
        asked = False
        while True:
            has = sum(u.lovelace for u in await self.chain.utxos(self.wallet.address))
            if has >= NEEDED:
                say("funded", address=text, lovelace=has)
                return
            if not asked:
                say("please fund", address=text, lovelace=NEEDED - has)
                asked = True
            await anyio.sleep(self.poll_s)

    async def included(self, step: str, tx_id: bytes, **facts: Any) -> None:
        """Wait for its block, and say so."""
        height = await self.follower.wait(tx_id, poll_s=self.poll_s)
        say(step, tx=tx_id.hex(), height=height, **facts)

    async def view(self, session: Signer, origin: OutRef) -> ChannelView | ChannelEnded:
        """The channel now; an indexer may need a while to show a fresh one."""
        while True:
            try:
                return await self.finder.find(session.verify_key, origin)
            except (ChannelUnknown, ChainFault):
                await anyio.sleep(self.poll_s)

    async def living(
        self, session: Signer, origin: OutRef, ready: Callable[[ChannelView], bool]
    ) -> ChannelView:
        """The channel once the indexer shows what *ready* waits for."""
        while True:
            found = await self.view(session, origin)
            if isinstance(found, ChannelView) and ready(found):
                return found
            await anyio.sleep(self.poll_s)

    async def open(self, close_period_ms: int) -> tuple[Signer, OutRef]:
        """A channel with a fresh session key."""
        session = Signer(secrets.token_bytes(32))
        consts = Consts(
            session.verify_key,
            self.adapter.key_hash,
            addresses.payout_hash(self.payout),
            self.wallet.signer.key_hash,
            close_period_ms,
            0,
        )
        stake = Credential(self.wallet.stake or b"")
        opened = await open_channels(self.desk, [Opening(DEPOSIT, lambda _r, _i: consts, stake)])
        await self.included("opened", opened.sent.tx_id, lovelace=DEPOSIT, fee=opened.sent.fee)
        return session, opened.refs[0]


async def the_usual_way(walk: Walk) -> None:
    """Open, claim, top up, and an adapter that finishes."""
    payouts = {addresses.payout_hash(walk.payout): walk.payout}
    session, ref = await walk.open(3_600_000)
    view = await walk.living(session, ref, lambda v: v.claimed == 0)
    snapshot = await walk.chain.snapshot(walk.desk.scripts)
    say("capacity", **vars_of(channel_capacity(snapshot, view)))
    one = await claim(walk.desk, [(view, Voucher.sign(session, 2 * ADA))], payouts)
    await walk.included("claimed", one.sent.tx_id, lovelace=one.claimed, fee=one.sent.fee)
    view = await walk.living(session, ref, lambda v: v.claimed == 2 * ADA)
    more = await top_up(walk.desk, view, 3 * ADA)
    await walk.included("topped up", more.sent.tx_id, lovelace=3 * ADA, fee=more.sent.fee)
    view = await walk.living(session, ref, lambda v: v.amount == DEPOSIT + ADA)
    last = [(view, Voucher.sign(session, 4 * ADA))]
    done = await finish_channels(walk.desk, last, payouts, walk.adapter)
    await walk.included("finished", done.sent.tx_id, lovelace=done.claimed, fee=done.sent.fee)
    ended = await walk.view(session, ref)
    while not isinstance(ended, ChannelEnded):
        await anyio.sleep(walk.poll_s)
        ended = await walk.view(session, ref)
    say("account", claimed=ended.claimed, refunded=ended.refunded)
    if (ended.claimed, ended.refunded) != (4 * ADA, DEPOSIT - ADA):
        raise ChainFault("the chain's account of the channel is not what was done")


async def the_lonely_way(walk: Walk) -> None:
    """Close without the provider, wait, and send the rest home."""
    session, ref = await walk.open(60_000)
    view = await walk.living(session, ref, lambda v: not v.closing)
    closed = await close_channel(walk.desk, view)
    await walk.included("closed", closed.sent.tx_id, fee=closed.sent.fee)
    view = await walk.living(session, ref, lambda v: v.closing)
    assert isinstance(view.stage, Closing)
    say("waiting", until_ms=view.stage.expire_at_ms)
    while (await walk.chain.tip()).time_ms < view.stage.expire_at_ms:  # noqa: ASYNC110 - a chain calls nobody
        await anyio.sleep(walk.poll_s)
    home = await finish_channels(walk.desk, [(view, None)], {})
    await walk.included("sent home", home.sent.tx_id, lovelace=view.amount, fee=home.sent.fee)


def vars_of(capacity: Any) -> dict[str, int]:
    """A capacity's figures."""
    return {"most": capacity.most, "now": capacity.now, "reserve": capacity.reserve}


async def walk_through(options: argparse.Namespace) -> None:
    """Everything, in order."""
    chain = await connect(options.url, options.project_id)
    say("connected", magic=chain.magic)
    walk = Walk(chain, options.keys, options.poll)
    await walk.funded(options.faucet)
    sent = await deploy(walk.desk)
    if sent is not None:
        await walk.included("deployed", sent.tx_id, fee=sent.fee)
    while await chain.deployment(walk.desk.scripts) is None:  # noqa: ASYNC110 - the same
        await anyio.sleep(walk.poll_s)
    say(
        "scripts",
        settle=walk.desk.scripts.settle_hash.hex(),
        stub=walk.desk.scripts.stub_hash.hex(),
    )
    await the_usual_way(walk)
    if options.close:
        await the_lonely_way(walk)
    say("done", requests=chain.requests)


def main(argv: Sequence[str] | None = None) -> int:
    """0 when every step is in a block and the account is right."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--url", default=os.environ.get("TALLY_CHAIN_URL", ""))
    parser.add_argument("--project-id", default=os.environ.get("TALLY_PROJECT_ID", ""))
    parser.add_argument("--keys", type=Path, default=Path.home() / ".tally" / "walkthrough")
    parser.add_argument("--faucet", default="", help="of a devnet")
    parser.add_argument("--poll", type=float, default=5.0, help="seconds between looks")
    parser.add_argument("--close", action="store_true", help="also close a channel and wait")
    options = parser.parse_args(argv)
    if not options.url:
        parser.error("give --url or TALLY_CHAIN_URL")
    try:
        anyio.run(walk_through, options)
    except TallyError as error:
        say("failed", code=error.code, cause=str(error), remedy=error.remedy)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
