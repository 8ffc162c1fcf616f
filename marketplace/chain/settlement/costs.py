"""What each step of a channel costs on the chain, by the parameters as they are now.

Rehearsed with the builders that make the real transactions, so a fee has one source. Nothing of it
is ever sent. What is charged in the end is at most what is said here, and at least nine tenths of
it, as long as one or two outputs pay: scripts run with stand-in units, and each further output adds
about 1,600 lovelace. A share of ends together is within a twentieth of it, either way.
"""

from __future__ import annotations

from typing import Final

from marketplace.chain.build import plans
from marketplace.chain.build.balancing import Draft
from marketplace.chain.build.plans import Batch, Move, Opening
from marketplace.chain.build.wallet import COLLATERAL, Funds
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding import datum
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.transaction.snapshot import Snapshot
from marketplace.domain.keys import Signer
from marketplace.domain.money.address import Credential
from marketplace.domain.money.chain_fees import ChainFees
from marketplace.domain.money.channel import Consts, Open, TopUp
from marketplace.domain.money.voucher import Voucher

_SESSION: Final = Signer(bytes(32))  # of no channel: it signs a lovelace of the rehearsal's
_PAYS: Final = Signer(b"\x01" * 32)  # nobody's: the fee is paid by a key that ends no channel
_HELD: Final = 10_000_000
_PLENTY: Final = 1_000_000_000
_DUE: Final = 2_000_000  # stands as an output by itself
TOGETHER: Final = 10
"""Ends of as many providers in the transaction of which *end_together* is a share."""


def rehearse_finish(snapshot: Snapshot, funds: Funds, adapter_vkh: bytes, payout: bytes) -> Draft:
    """The dearest Finish of one channel, paid from *funds*: its voucher is so small that the payout
    (an address) must be topped up to the least that an output may hold.

    FundsShort when *funds* do not pay for it, NotDeployed where no channel can be yet.
    """
    payout_hash = addresses.payout_hash(payout)
    channel = _channel(snapshot, 0, adapter_vkh, payout_hash)
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


def chain_fees(snapshot: Snapshot) -> ChainFees:
    """Every step's, in lovelace, for channels in ADA.

    NotDeployed where no channel can be yet.
    """
    return ChainFees(
        open=_open_fee(snapshot),
        top_up=_top_up_fee(snapshot),
        end=finish_fee(snapshot),
        end_together=_end_share(snapshot),
    )


def _open_fee(snapshot: Snapshot) -> int:
    """Of one channel, paid from two outputs of a wallet with a stake key."""
    home = addresses.key_address(_PAYS.key_hash, bytes(28), snapshot.mainnet)
    consts = Consts(_SESSION.verify_key, bytes(28), bytes(28), bytes(28), 2**40, 100)
    opening = Opening(_HELD, lambda _first, _index: consts, Credential(bytes(28)))
    two = (Utxo(OutRef(b"\x01" * 32, n), home, _HELD * 2 // 3) for n in (0, 1))
    return plans.open_channels(snapshot, Funds.of(home, two), [opening]).finish().fee


def _top_up_fee(snapshot: Snapshot) -> int:
    home = addresses.key_address(_PAYS.key_hash, bytes(28), snapshot.mainnet)
    channel = _channel(snapshot, 0, bytes(28), bytes(28), _PAYS.key_hash)
    batch = Batch((Move(channel, TopUp(_HELD)),), signers=(_PAYS.key_hash,))
    draft = plans.settle(snapshot, _plenty(home), batch).draft
    return draft.finish(draft.guess).fee


def _end_share(snapshot: Snapshot) -> int:
    """One of :data:`TOGETHER` providers', each with a key and a payout of its own."""
    home = addresses.key_address(_PAYS.key_hash, bytes(28), snapshot.mainnet)
    step = plans.finish_step(Voucher.sign(_SESSION, _DUE), 0)
    keys = [bytes([n]) * 28 for n in range(TOGETHER)]
    payouts = {
        addresses.payout_hash(at): at
        for at in (addresses.key_address(key, bytes(28), snapshot.mainnet) for key in keys)
    }
    moves = tuple(
        Move(_channel(snapshot, n, key, payout), step)
        for n, (key, payout) in enumerate(zip(keys, payouts, strict=True))
    )
    draft = plans.settle(snapshot, _plenty(home), Batch(moves, payouts, tuple(keys))).draft
    return -(-draft.finish(draft.guess).fee // TOGETHER)


def _channel(
    snapshot: Snapshot, index: int, adapter_vkh: bytes, payout: bytes, consumer: bytes = bytes(28)
) -> Utxo:
    """A channel that is nobody's; *payout* is a hash."""
    consts = Consts(_SESSION.verify_key, adapter_vkh, payout, consumer, 2**40, 0)
    stub = snapshot.scripts.stub_hash
    at = addresses.channel_address(stub, Credential(bytes(28)), snapshot.mainnet)
    body = datum.stage_bytes(Open(consts, 0))
    return Utxo(OutRef(bytes(32), index), at, _HELD, datum=body)


def _plenty(home: bytes) -> Funds:
    """One large plain output at *home*, and a collateral apart: what a settler keeps."""
    utxos = (Utxo(OutRef(b"\x01" * 32, n), home, m) for n, m in ((0, _PLENTY), (1, COLLATERAL)))
    return Funds.of(home, utxos)
