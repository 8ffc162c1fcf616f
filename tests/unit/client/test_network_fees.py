"""What the network took for a job is read from the bytes of what opened its channels."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import anyio
import cbor2
import pytest

from marketplace.chain.encoding import datum, txbytes
from marketplace.chain.errors import ChainFault
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.cli.shared.tables import with_fees
from marketplace.client.jobs.verifier import network_fees
from marketplace.domain.money.channel import Consts, Open
from marketplace.domain.money.evidence import Evidence, read
from tests.unit.support.invoice import whole
from tests.unit.support.routed import beside_a_direct_channel, routed


def opening(fee: int) -> bytes:
    return cbor2.dumps([{0: [], 1: [], 2: fee}, {}, True, None])


class Chain:
    """Shows *blocks*: transactions by id."""

    def __init__(self, blocks: dict[str, bytes]) -> None:
        self.blocks = blocks

    async def transaction_bytes(self, tx_id: bytes) -> bytes | None:
        return self.blocks.get(tx_id.hex())


def asked(evidence: Evidence, blocks: dict[str, bytes]) -> int | None:
    async def ask() -> int | None:
        return await network_fees(evidence, cast(ChainReader, Chain(blocks)))

    return anyio.run(ask)


def case(*fees: int) -> tuple[Evidence, dict[str, bytes]]:
    """The whole case, whose channels these transactions opened."""
    evidence = read(whole().json().encode())
    blocks = {txbytes.split(opening(fee)).tx_id.hex(): opening(fee) for fee in fees}
    channels = tuple(
        replace(channel, open_tx=tx)
        for channel, tx in zip(evidence.channels, blocks, strict=True)
    )  # fmt: skip
    return replace(evidence, channels=channels), blocks


def test_a_fee_counts_for_the_job_whose_receipt_is_the_channels_first() -> None:
    evidence, blocks = case(174_433, 180_001)
    jobs = {x.lease: x.job for lease in evidence.leases if (x := lease.signed.terms)}
    mine = [c for c in evidence.channels if jobs[c.receipts[0].receipt.lease] == evidence.job]
    assert mine, "the case has a channel that this job opened"
    fees = {tx: int(txbytes.body_of(raw)[2]) for tx, raw in blocks.items()}
    assert asked(evidence, blocks) == sum(fees[c.open_tx] for c in mine)
    # For another job that only went on in these channels there was no fee.
    assert asked(replace(evidence, job="job_elsewhere"), blocks) == 0


def test_of_a_transaction_that_opened_many_channels_each_bears_its_share() -> None:
    evidence, _ = case(174_433, 180_001)
    mine = next(c for c in evidence.channels if asked_of(evidence, c.session_vk))
    keys = [b"a" * 32, mine.session_vk, b"b" * 32]
    raw = cbor2.dumps([{0: [], 1: [channel(key) for key in keys], 2: 200_002}, {}, True, None])
    tx = txbytes.split(raw).tx_id.hex()

    def share(session_vk: bytes) -> int | None:
        one = replace(mine, session_vk=session_vk, open_tx=tx)
        return asked(replace(evidence, channels=(one,)), {tx: raw})

    assert [share(key) for key in keys] == [66_668, 66_667, 66_667]
    assert share(b"c" * 32) == 200_002, "it opened no channel of that one: nothing is shared"


def asked_of(evidence: Evidence, session_vk: bytes) -> bool:
    """Whether the first receipt of that channel is this job's."""
    jobs = {x.lease: x.job for lease in evidence.leases if (x := lease.signed.terms)}
    (one,) = [c for c in evidence.channels if c.session_vk == session_vk]
    return jobs[one.receipts[0].receipt.lease] == evidence.job


def channel(session_vk: bytes) -> dict[int, Any]:
    """An output that is a channel of that key, as CBOR takes it."""
    consts = Consts(session_vk, bytes(28), bytes(28), bytes(28), 600_000, 100)
    body = cbor2.CBORTag(24, datum.stage_bytes(Open(consts, 0)))
    return {0: b"\x70" + bytes(28), 1: 3_000_000, 2: [1, body]}


def test_a_door_that_answers_another_transaction_is_not_believed() -> None:
    evidence, blocks = case(174_433, 180_001)
    lie = dict.fromkeys(blocks, opening(1))
    with pytest.raises(ChainFault):
        asked(evidence, lie)
    assert asked(evidence, {}) is None


def test_the_bill_is_a_sum() -> None:
    said = with_fees(6_054, 174_433)
    assert said == "compute 0.006054 ADA + network fees 0.174433 ADA = 0.180487 ADA"
    assert "0.006054 ADA" in with_fees(6_054, None) and "=" not in with_fees(6_054, None)
    whole_case: dict[str, Any] = json.loads(whole().json())
    assert "network_fees" not in whole_case, "the evidence is pinned, and has no field for it"


def test_a_routed_jobs_money_went_over_channels_of_the_routers() -> None:
    """Their opening is no job's: they are kept. Its bill has the router's fee beside."""
    routers = read(routed().json().encode())
    assert asked(replace(routers, channels=()), {}) == 0
    mixed = read(beside_a_direct_channel().json().encode())
    direct = [c for c in mixed.channels if c.open_tx]
    assert asked(replace(mixed, channels=tuple(direct)), {}) is None
    assert with_fees(4000, 0, 20).endswith(" = 0.004020 ADA")
