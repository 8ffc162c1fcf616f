"""Signing in with a key of one's own: a CIP-8 message (COSE_Sign1, RFC 9052), as CIP-30 wallets
make.
"""

from __future__ import annotations

from dataclasses import dataclass

import cbor2

from marketplace.domain.keys import Signer


@dataclass(frozen=True)
class SignedMessage:
    """Hex of the COSE_Sign1 and of the COSE_Key, as CIP-30's ``signData`` returns them."""

    signature: str
    key: str


def sign_message(signer: Signer, address: bytes, message: bytes) -> SignedMessage:
    """*message* signed by the payment key of *address*.

    Headers as CIP-8 wants them: protected {alg: EdDSA, "address"}, unprotected {"hashed": false}.
    """
    protected = cbor2.dumps({1: -8, "address": address})
    to_sign = cbor2.dumps(["Signature1", protected, b"", message])
    cose = cbor2.dumps([protected, {"hashed": False}, message, signer.sign(to_sign)])
    key = cbor2.dumps({1: 1, 3: -8, -1: 6, -2: signer.verify_key})
    return SignedMessage(cose.hex(), key.hex())
