"""A session key is one channel's for ever: the payer signs nothing on one that it has seen."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from marketplace.client.jobs.core.quotes import CheckedQuote, QuoteRefused
from marketplace.client.jobs.runner import Runner
from marketplace.client.payer.journal import ChannelFacts, Journal, channel_row
from marketplace.client.payer.payers import Payers
from marketplace.client.wallet.purse import Purse
from marketplace.domain.money.chain_fees import ChainFees
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.work.parts import Price
from tests.unit.support.adapter import ADAPTER, core_job, offer, terms_for
from tests.unit.support.answers import job_answer


def test_a_fresh_channel_on_a_key_that_was_seen_is_refused(tmp_path: Path) -> None:
    purse = Purse.create(tmp_path, passphrase="a passphrase of the tests")
    session, nobody = purse.new_session(), SimpleNamespace()

    async def reserve(_terms: object, _pays: int) -> int:
        return 2_000_000

    async def fees() -> ChainFees:
        return ChainFees(200_000, 230_000, 220_000, 40_000)

    till: Any = SimpleNamespace(chain=SimpleNamespace(magic=42), reserve=reserve, fees=fees)
    http: Any = nobody
    payers = Payers(purse.channels, "http://market", 42, http)
    runner = Runner(http, purse, till, payers)
    job = core_job(price=Price(budget=1_000_000))
    terms = terms_for(
        offer(), job, session=session, consumer_vkh=purse.signer.key_hash, ceiling=1_000
    )
    body = terms.encode()
    quote = {"terms": body.hex(), "adapter_signature": ADAPTER.sign(body).hex(), "channel": "fresh"}
    view = job_answer(spec=job.to_wire(), quote=quote)

    async def examine() -> CheckedQuote:
        return await runner.agreements.examine(view)

    assert anyio.run(examine).fresh
    journal, _ = Journal.hold(purse.channels, session.verify_key)
    facts = ChannelFacts(
        session.verify_key, "http://another", 42, "ab" * 32, "", 1, state=ChannelStage.ENDED
    )
    journal.write(channel_row(facts))
    journal.close()
    with pytest.raises(QuoteRefused, match="used before"):
        anyio.run(examine)
