"""What a volume's owner asks of its provider: its content out of it, or into it.

A market passes these on, and could ask for a content itself, or put another one in: so both are
signed by the session key of the volume's channel, the one that opens the volume. What comes out is
sealed to a recipient that the signature names; what goes in is sealed to a key that was made for
this once, which the provider alone learns, so that nobody else can have sealed it.

Either way it is a tar archive in age's format (https://age-encryption.org/v1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from marketplace.domain import canonical
from marketplace.domain.canonical import blake2b_256
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.keys import Signer, verifies

_TAG: Final = "tally/volume-move/v1"
_MOST: Final = 512  # bytes of a recipient, or of a sealed key


class MoveUnsigned(Refusal):
    """Somebody else than the volume's owner asks for its content, or for another one in it."""

    code = "MOVE_UNSIGNED"
    remedy = "`tally volume export` and `import` sign with the purse that rents the volume"


class Way(StrEnum):
    """Where the content goes, seen from the volume."""

    EXPORT = "export"
    IMPORT = "import"


@dataclass(frozen=True)
class Move:
    """*lease*: the volume's. *key*: the age recipient that it is sealed to, as text, for an export;
    for an import the age identity that opens it, in a box for the adapter (``keys.seal_to``).
    """

    lease: str
    way: Way
    key: bytes
    signature: bytes

    @staticmethod
    def message(lease: str, way: Way, key: bytes) -> bytes:
        """What is signed: canonical CBOR under its own tag."""
        return canonical.encode([_TAG, lease, way.value, key])

    @staticmethod
    def sign(session: Signer, lease: str, way: Way, key: bytes) -> Move:
        """By the session key of the channel that pays for the volume."""
        return Move(lease, way, key, session.sign(Move.message(lease, way, key)))

    @property
    def name(self) -> str:
        """Of this one and no other, hex: an import is good once."""
        return blake2b_256(self.message(self.lease, self.way, self.key)).hex()

    def words(self) -> list[str]:
        """As the command that is run in a volume."""
        return [self.way.value, self.key.hex(), self.signature.hex()]

    @staticmethod
    def of(lease: str, words: Sequence[str]) -> Move:
        """What :meth:`words` gave, for the volume of *lease*; Malformed for anything else."""
        try:
            way, key, signature = words
            found = Move(lease, Way(way), bytes.fromhex(key), bytes.fromhex(signature))
        except ValueError as error:
            raise Malformed("a volume runs nothing: export and import are what it takes") from error
        if not 0 < len(found.key) <= _MOST:
            raise Malformed(f"a key of {len(found.key)} bytes")
        return found

    def verify(self, session_vk: bytes) -> None:
        """:class:`MoveUnsigned` unless *session_vk* signed it."""
        if not verifies(session_vk, self.message(self.lease, self.way, self.key), self.signature):
            raise MoveUnsigned("the key that pays for the volume did not sign this")
