"""Ed25519 (RFC 8032) keys and signatures, and how a session key is derived (HKDF, RFC 5869)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from nacl.exceptions import BadSignatureError, CryptoError
from nacl.public import PrivateKey, PublicKey, SealedBox
from nacl.signing import SigningKey, VerifyKey

from marketplace.domain.canonical import blake2b_224
from marketplace.domain.errors import Malformed


@dataclass(frozen=True)
class Signer:
    """A private key: 32 bytes of *seed*, never printed."""

    seed: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.seed) != 32:
            raise Malformed("an Ed25519 seed has 32 bytes")

    @cached_property
    def _key(self) -> SigningKey:
        """The seed's key pair: making it costs as much as a signature."""
        return SigningKey(self.seed)

    @property
    def verify_key(self) -> bytes:
        """The public key, 32 bytes."""
        return bytes(self._key.verify_key)

    @property
    def key_hash(self) -> bytes:
        """blake2b_224 of the public key: how Cardano names it, 28 bytes."""
        return blake2b_224(self.verify_key)

    def sign(self, message: bytes) -> bytes:
        """64 bytes."""
        return self._key.sign(message).signature


def verifies(verify_key: bytes, message: bytes, signature: bytes) -> bool:
    """True when *signature* over *message* is by *verify_key*; False for anything malformed."""
    if len(verify_key) != 32 or len(signature) != 64:
        return False
    try:
        VerifyKey(verify_key).verify(message, signature)
    except (BadSignatureError, CryptoError, ValueError):
        return False
    return True


def seal_to(verify_key: bytes, message: bytes) -> bytes:
    """*message* in a box that only the holder of *verify_key*'s private key opens (libsodium's
    sealed box, to the X25519 form of the key).

    Secrets are sealed to the very key that signed the terms, so nobody between can put another in
    its place. :class:`Malformed` for bytes that are no key.
    """
    try:
        public: PublicKey = VerifyKey(verify_key).to_curve25519_public_key()
        return SealedBox(public).encrypt(message)
    except (CryptoError, ValueError, RuntimeError) as error:
        raise Malformed("secrets cannot be sealed to this key") from error


def unseal(signer: Signer, box: bytes) -> bytes:
    """What :func:`seal_to` sealed to *signer*'s public key; :class:`Malformed` for anything
    else.
    """
    private: PrivateKey = SigningKey(signer.seed).to_curve25519_private_key()
    try:
        return SealedBox(private).decrypt(box)
    except (CryptoError, ValueError, TypeError) as error:
        raise Malformed("the box is not sealed to this key") from error
