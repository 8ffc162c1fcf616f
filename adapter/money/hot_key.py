"""Whether the hot key's money would do for a Finish: rehearsed, not guessed.

The dearest Finish is planned with what lies at the key's address: of a voucher so small that the
payout must be topped up to the least that an output may hold.  Nothing of it is ever sent.
"""

from __future__ import annotations

from typing import Final

from marketplace.chain.build import plans
from marketplace.chain.build.plans import Batch, Move
from marketplace.chain.build.wallet import Funds
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding import datum
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.errors import FundsShort, NotDeployed
from marketplace.chain.transaction.snapshot import Snapshot
from marketplace.domain.keys import Signer
from marketplace.domain.money.address import Credential
from marketplace.domain.money.channel import Consts, Open
from marketplace.domain.money.voucher import Voucher

_SESSION: Final = Signer(bytes(32))  # of no channel: it signs a lovelace of the rehearsal's
_HELD: Final = 10_000_000


def short_of(snapshot: Snapshot, funds: Funds, adapter_vkh: bytes, payout: bytes) -> str:
    """Why *funds* do not pay for a Finish now, in words; empty if they do, or where no channel can
    be on this chain yet.  *payout* is an address.
    """
    payout_hash = addresses.payout_hash(payout)
    consts = Consts(_SESSION.verify_key, adapter_vkh, payout_hash, bytes(28), 2**40, 0)
    stub = snapshot.scripts.stub_hash
    at = addresses.channel_address(stub, Credential(bytes(28)), snapshot.mainnet)
    body = datum.stage_bytes(Open(consts, 0))
    channel = Utxo(OutRef(bytes(32), 0), at, _HELD, datum=body)
    step = plans.finish_step(Voucher.sign(_SESSION, 1), 0)
    batch = Batch((Move(channel, step),), {payout_hash: payout}, (adapter_vkh,))
    try:
        return "" if plans.settle(snapshot, funds, batch).draft.bytes else "no transaction"
    except FundsShort as short:
        return short.message
    except NotDeployed:
        return ""
