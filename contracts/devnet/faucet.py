"""The faucet: an ordinary wallet that holds the whole supply at genesis and pays with ordinary
transactions.

Its key is public and the same on every devnet. So money is never made: what the faucet paid is what
the rest of the chain holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import cbor2
from nacl.signing import SigningKey

from contracts.devnet import addresses
from contracts.devnet.parameters import GENESIS_LOVELACE, MIN_FEE_COEFFICIENT, MIN_FEE_CONSTANT
from contracts.devnet.transaction import OutRef, Tx, blake2b

_KEY = SigningKey(hashlib.blake2b(b"tally devnet faucet", digest_size=32).digest())
_ENTERPRISE_KEY_TESTNET = 0x60
_RAW = bytes([_ENTERPRISE_KEY_TESTNET]) + bytes.fromhex(blake2b(bytes(_KEY.verify_key), 28))
# One input, two outputs, one signature: no payment of the faucet's is longer than this, whatever
# the address.
_LARGEST_PAYMENT = 330
_FEE = MIN_FEE_CONSTANT + MIN_FEE_COEFFICIENT * _LARGEST_PAYMENT

ADDRESS = addresses.describe(_RAW).text
GENESIS = OutRef(blake2b(b"tally devnet genesis"), 0)
GENESIS_OUTPUT = cbor2.dumps([_RAW, GENESIS_LOVELACE])


@dataclass(frozen=True, slots=True)
class Coin:
    """An unspent output of the faucet's."""

    ref: OutRef
    lovelace: int


def newest(largest: Coin | None, waiting: Iterable[Tx]) -> Coin:
    """What the faucet pays from: its largest coin in the blocks, or the change of whatever already
    spends it in the mempool.
    """
    assert largest is not None, "every payment leaves change"
    coin = largest
    for tx in waiting:
        if coin.ref in tx.inputs:
            change = len(tx.outputs) - 1
            coin = Coin(OutRef(tx.id, change), tx.outputs[change].lovelace)
    return coin


def payment(coin: Coin, to: bytes, lovelace: int) -> bytes:
    """A signed transaction that pays ``lovelace`` to an address; output 0 is the payment, output 1
    the change.
    """
    change = coin.lovelace - lovelace - _FEE
    body = {
        0: [[bytes.fromhex(coin.ref.tx), coin.ref.ix]],
        1: [[to, lovelace], [_RAW, change]],
        2: _FEE,
    }
    digest = hashlib.blake2b(cbor2.dumps(body), digest_size=32).digest()
    witness = {0: [[bytes(_KEY.verify_key), _KEY.sign(digest).signature]]}
    return cbor2.dumps([body, witness, True, None])
