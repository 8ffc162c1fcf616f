"""After a crash the payer finds the channel that it opened, whatever lies beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from marketplace.chain import datum
from marketplace.chain.channels import ChannelFinder
from marketplace.chain.utxo import OutRef, Utxo
from marketplace.client.purse import Purse
from marketplace.client.till import Till
from marketplace.domain.channel import Open
from marketplace.domain.terms import Terms
from tests.unit.support_adapter import core_job, offer, terms_for


class Chain:
    """Knows the scripts and nothing else."""

    magic, mainnet = 42, False

    async def snapshot(self, scripts: Any) -> Any:
        class Snapshot:
            pass

        found: Any = Snapshot()
        found.scripts, found.mainnet = scripts, False
        return found


def output(index: int, terms: Terms, lovelace: int, claimed: int = 0) -> Utxo:
    body = datum.stage_bytes(Open(terms.consts(), claimed))
    return Utxo(OutRef(bytes([index]) * 32, 0), b"", lovelace, datum=body)


def test_a_poorer_copy_beside_the_channel_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    purse = Purse.create(tmp_path, passphrase="a passphrase of the tests")
    terms = terms_for(
        offer(), core_job(), session=purse.new_session(), consumer_vkh=purse.signer.key_hash
    )
    there: list[Utxo] = []

    async def at_address(*_: object) -> list[Utxo]:
        return there

    monkeypatch.setattr(ChannelFinder, "at_address", at_address)
    chain: Any = Chain()
    till = Till(purse, chain)
    assert anyio.run(till.find_open, terms) is None
    there += [
        output(1, terms, 2_000_000),
        output(2, terms, 9_000_000),
        output(3, terms, 3_000_000),
        output(4, terms, 99_000_000, claimed=1),  # not what this payer opened
    ]
    assert anyio.run(till.find_open, terms) == there[1].ref
