"""``tally channel check`` on a real chain: what was built for a wallet elsewhere, and what a liar
made of it.
"""

from __future__ import annotations

import json
import sys

import anyio
import cbor2

from marketplace.chain.actions.external_wallet import (
    ForeignWallet,
    signed_by_wallet,
    unsigned_close,
    unsigned_open,
    unsigned_top_up,
)
from marketplace.chain.build.plans import Opening
from marketplace.chain.channels.finder import ChannelView
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding.txbytes import split
from marketplace.chain.node.submit import MemoryLog, send
from marketplace.domain.keys import Signer
from marketplace.domain.money.address import Credential
from tests.integration.support.chain import ADA, World, key, run
from tests.unit.support.adapter import core_job, offer, terms_for


async def checked(*given: str) -> tuple[int, dict[str, object]]:
    """(exit code, what it prints)."""
    command = [sys.executable, "-m", "marketplace.cli.main", "channel", "check", *given, "--json"]
    done = await anyio.run_process(command, check=False)
    return done.returncode, json.loads(done.stdout)


def stolen(tx: bytes) -> bytes:
    """With the thief in place of the channel's address."""
    parts = split(tx)
    body = cbor2.loads(parts.body)
    thief = addresses.key_address(Signer(b"t" * 32).key_hash, None, False)
    body[1][0] = {**body[1][0], 0: thief}
    return b"\x84" + cbor2.dumps(body) + parts.witnesses + parts.rest


def test_what_was_built_for_a_wallet_elsewhere_is_checked_on_the_chain() -> None:
    async def story(world: World) -> None:
        me, log = world.wallet("browser"), MemoryLog()
        world.fund("browser", 200 * ADA)
        session = key("browser session")
        agreed = terms_for(offer(), core_job(), session=session, consumer_vkh=me.signer.key_hash)
        at = ["--chain-url", world.served.url, "--own", addresses.to_text(me.address)]  # type: ignore[attr-defined]

        async def wallet() -> ForeignWallet:
            return ForeignWallet(me.address, tuple(await world.chain.utxos(me.address)))

        async def same(step: str, tx: bytes, *more: str) -> None:
            code, said = await checked(step, tx.hex(), *at, *more)
            assert (code, said["ok"]) == (0, True), said
            code, said = await checked(step, stolen(tx).hex(), *at, *more)
            assert (code != 0, said["ok"]) == (True, False), said

        amount = agreed.ceiling + 1_600_000
        opening = Opening(amount, lambda _r, _i: agreed.consts(), Credential(me.stake or b""))
        unsigned = await unsigned_open(world.chain, await wallet(), [opening])
        await same("open", unsigned.bytes, "--terms", agreed.encode().hex())

        def sign(tx_id: bytes) -> bytes:
            return cbor2.dumps({0: [[me.signer.verify_key, me.signer.sign(tx_id)]]})

        sent = await send(
            world.chain, log, signed_by_wallet(unsigned, sign(unsigned.tx_id)), "open"
        )
        view = await world.finder.find(session.verify_key, sent.made[0].ref)
        assert isinstance(view, ChannelView)
        named = ["--session", session.verify_key.hex(), "--origin", str(sent.made[0].ref)]
        more = await unsigned_top_up(world.chain, await wallet(), view, 5 * ADA)
        await same("topup", more.bytes, *named, "--amount", "5 ADA")
        code, said = await checked("topup", more.bytes.hex(), *at, *named, "--amount", "4 ADA")
        assert (code != 0, said["ok"]) == (True, False)
        close = await unsigned_close(world.chain, await wallet(), view)
        await same("close", close.bytes, *named, "--terms", agreed.encode().hex())

    run(story)
