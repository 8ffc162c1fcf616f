"""What a channel's end costs its provider on the chain, by the parameters as they are now.

Rehearsed with the builders that make the real transaction, so the fee has one source. Nothing of it
is ever sent.
"""

from __future__ import annotations

from typing import Final

from marketplace.chain.build import plans
from marketplace.chain.build.balancing import Draft
from marketplace.chain.build.plans import Batch, Move
from marketplace.chain.build.wallet import COLLATERAL, Funds
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding import datum
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.transaction.snapshot import Snapshot
from marketplace.domain.keys import Signer
from marketplace.domain.money.address import Credential
from marketplace.domain.money.channel import Consts, Open
from marketplace.domain.money.voucher import Voucher

_SESSION: Final = Signer(bytes(32))  # of no channel: it signs a lovelace of the rehearsal's
_PAYS: Final = Signer(b"\x01" * 32)  # nobody's: the fee is paid by a key that ends no channel
_HELD: Final = 10_000_000
_PLENTY: Final = 1_000_000_000


def rehearse_finish(snapshot: Snapshot, funds: Funds, adapter_vkh: bytes, payout: bytes) -> Draft:
    """The dearest Finish of one channel, paid from *funds*: its voucher is so small that the payout
    (an address) must be topped up to the least that an output may hold.

    FundsShort when *funds* do not pay for it, NotDeployed where no channel can be yet.
    """
    payout_hash = addresses.payout_hash(payout)
    consts = Consts(_SESSION.verify_key, adapter_vkh, payout_hash, bytes(28), 2**40, 0)
    stub = snapshot.scripts.stub_hash
    at = addresses.channel_address(stub, Credential(bytes(28)), snapshot.mainnet)
    body = datum.stage_bytes(Open(consts, 0))
    channel = Utxo(OutRef(bytes(32), 0), at, _HELD, datum=body)
    step = plans.finish_step(Voucher.sign(_SESSION, 1), 0)
    batch = Batch((Move(channel, step),), {payout_hash: payout}, (adapter_vkh,))
    return plans.settle(snapshot, funds, batch).draft


def finish_fee(snapshot: Snapshot) -> int:
    """Lovelace: what its adapter pays to end one channel alone, with the last claim in the same
    transaction. A few per cent above what is charged in the end: it runs with stand-in units.

    NotDeployed where no channel can be yet.
    """
    home = addresses.key_address(_PAYS.key_hash, bytes(28), snapshot.mainnet)
    draft = rehearse_finish(snapshot, _plenty(home), _SESSION.key_hash, home)
    return draft.finish(draft.guess).fee


def _plenty(home: bytes) -> Funds:
    """One large plain output at *home*, and a collateral apart: what a settler keeps."""
    utxos = (Utxo(OutRef(b"\x01" * 32, n), home, m) for n, m in ((0, _PLENTY), (1, COLLATERAL)))
    return Funds.of(home, utxos)
