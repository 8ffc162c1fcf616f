"""Sign-in by CIP-8, with the traps that ``pycardano.cip.cip8.verify`` leaves open closed.

It accepts an address whose payment key signed but whose stake part is foreign, and a script address
with the same 28 bytes; so an account is the *payment key hash* and nothing else, the address must
be of a key type, and network and message are compared here. Malformed input raises many kinds of
exceptions: all of them mean the same.
"""

from __future__ import annotations

from typing import Any, cast

from pycardano import Address, Network, VerificationKeyHash
from pycardano.cip import cip8

from marketplace.domain import cbor
from marketplace.domain.canonical import want_bytes, want_list
from marketplace.domain.errors import Refusal


class SignInRefused(Refusal):
    """The signature does not prove that the wallet at this address answered this challenge."""

    code = "SIGN_IN_REFUSED"
    remedy = "sign the challenge's exact message with the wallet of this address, on this network"


def payment_key_hash(address: str, mainnet: bool) -> str:
    """Hex of the payment key hash of *address* (bech32, or hex as CIP-30 gives it)."""
    try:
        parsed = (
            Address.from_primitive(bytes.fromhex(address))
            if all(c in "0123456789abcdefABCDEF" for c in address)
            else Address.from_primitive(address)
        )
        part = parsed.payment_part
        network = parsed.network
    except Exception as error:
        raise SignInRefused("this is not a Cardano address") from error
    if not isinstance(part, VerificationKeyHash):
        raise SignInRefused("only an address of a payment key can sign in")
    if network is not (Network.MAINNET if mainnet else Network.TESTNET):
        raise SignInRefused("the address is of another network")
    return part.payload.hex()


def verify_sign_in(address: str, signature: str, key: str, mainnet: bool) -> tuple[str, str]:
    """(account, message): which payment key hash signed what; SignInRefused for anything else.

    The caller compares the message with its challenge.

    *signature* and *key*: hex of COSE_Sign1 and COSE_Key, as CIP-30's ``signData`` returns them.
    """
    account = payment_key_hash(address, mainnet)
    try:
        _judge(bytes.fromhex(signature), bytes.fromhex(key))
        result = cast(
            "dict[str, Any]",
            cip8.verify(  # pyright: ignore[reportUnknownMemberType] -- pycardano types its dictionaries by half
                {"signature": signature, "key": key}, attach_cose_key=True
            ),
        )
        signer = result["signing_address"]
        verified, said = result["verified"], result["message"]
        part = signer.payment_part
    except Exception as error:
        raise SignInRefused("the signature does not parse") from error
    if verified is not True:
        raise SignInRefused("the signature is not by the key of the address")
    if not isinstance(part, VerificationKeyHash) or part.payload.hex() != account:
        raise SignInRefused("another key signed than that of the address")
    if not isinstance(said, str):
        raise SignInRefused("the signed message is not text")
    return account, said


def _judge(signature: bytes, key: bytes) -> None:
    """Malformed unless both are plain CBOR of a small size, before a general decoder sees them:
    that of COSE would follow tags into regular expressions and decimals, in the header's bytes as
    well.
    """
    cbor.ledger(key, cbor.COSE)
    parts = want_list(cbor.ledger(signature, cbor.COSE), 4, "COSE_Sign1")
    header = want_bytes(parts[0], None, "protected header")
    if header:
        cbor.ledger(header, cbor.COSE)
