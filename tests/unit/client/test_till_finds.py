"""What a payer takes for the channel that it opened: never a copy that somebody laid beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding import datum
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.node.answers import Moves
from marketplace.chain.transaction.snapshot import Tip
from marketplace.client.wallet.chain_wallet import Till
from marketplace.client.wallet.one_open import ChannelTwice, KeyUsed
from marketplace.client.wallet.purse import Purse
from marketplace.domain.money.address import Credential
from marketplace.domain.money.channel import Open
from marketplace.domain.money.terms import Terms
from tests.unit.support.adapter import core_job, offer, terms_for


class Chain:
    """Outputs, and by which key's address each was paid for."""

    magic, mainnet = 42, False

    def __init__(self) -> None:
        self.there: list[Utxo] = []
        self.payers: dict[bytes, bytes] = {}

    async def tip(self) -> Tip:
        return Tip(1000, 0, 100, "")

    async def utxos(self, address: bytes) -> list[Utxo]:
        return [utxo for utxo in self.there if utxo.address == address]

    async def moves(self, tx_id: bytes) -> Moves:
        spent = Utxo(OutRef(bytes(32), tx_id[0]), self.payers[tx_id], 50_000_000)
        return Moves((spent,), ())


def scene(folder: Path) -> tuple[Purse, Terms, Chain, Till]:
    purse = Purse.create(folder, passphrase="a passphrase of the tests")
    terms = terms_for(
        offer(), core_job(), session=purse.new_session(), consumer_vkh=purse.signer.key_hash
    )
    chain: Any = Chain()
    return purse, terms, chain, Till(purse, chain)


def lay(
    chain: Chain, till: Till, number: int, terms: Terms, payer: bytes, claimed: int = 0
) -> OutRef:
    """An output with the datum of *terms*, paid for by the key *payer*."""
    desk = till.desk()
    assert desk.wallet.stake is not None
    at = addresses.channel_address(desk.scripts.stub_hash, Credential(desk.wallet.stake), False)
    ref = OutRef(bytes([number]) * 32, 0)
    body = datum.stage_bytes(Open(terms.consts(), claimed))
    chain.there.append(Utxo(ref, at, number * 1_000_000, datum=body))
    chain.payers[ref.tx_id] = addresses.key_address(payer, None, False)
    return ref


def test_only_an_output_that_the_purse_paid_for_is_taken_for_its_channel(tmp_path: Path) -> None:
    purse, terms, chain, till = scene(tmp_path)
    assert anyio.run(till.find_open, terms) is None
    for number in (2, 99):  # strangers' copies, poorer and richer: with their money
        lay(chain, till, number, terms, b"\x07" * 28)
    assert anyio.run(till.find_open, terms) is None
    mine = lay(chain, till, 9, terms, purse.signer.key_hash)
    lay(chain, till, 98, terms, b"\x07" * 28, claimed=1)
    assert anyio.run(till.find_open, terms) == mine


def test_two_outputs_that_the_purse_paid_for_are_refused_and_so_are_other_rules(
    tmp_path: Path,
) -> None:
    purse, terms, chain, till = scene(tmp_path)
    lay(chain, till, 3, replace(terms, fee_bps=terms.fee_bps + 1), purse.signer.key_hash)
    with pytest.raises(KeyUsed):
        anyio.run(till.find_open, terms)
    lay(chain, till, 4, terms, purse.signer.key_hash)
    with pytest.raises(ChannelTwice, match="two outputs of one session key"):
        anyio.run(till.find_open, terms)
