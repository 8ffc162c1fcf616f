"""Whose an image of the market's own registry is, and how the provider of a lease asks for it.

A repository lies under its account's namespace: ``NAMESPACE/NAME``. The provider of a lease has no
account; it signs that it pulls one repository for one lease, and the market knows the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from marketplace.domain.canonical import encode
from marketplace.domain.errors import Malformed
from marketplace.domain.keys import Signer, verifies

LEASE_USER: Final = "lease"
"""The name with which a provider asks for a token; what it signed is the password."""
PULL_MS: Final = 600_000  # so long a signed pull holds
MOST_PULL_MS: Final = 3_600_000  # and the longest that a market takes
_TAG: Final = "tally/image-pull/v1"
_NAMESPACE_DIGITS: Final = 24
_NAME: Final = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*")
_MOST_NAME: Final = 100


def namespace_of(account: str) -> str:
    """The part of *account* (hex of a key's hash) under which its repositories lie: 96 bits, so
    that nobody finds a key with another's namespace.
    """
    return account[:_NAMESPACE_DIGITS]


def repository_of(namespace: str, name: str) -> str:
    """``NAMESPACE/NAME``; :class:`Malformed` unless *name* is one that Docker takes."""
    if len(name) > _MOST_NAME or not _NAME.fullmatch(name):
        raise Malformed(
            f"{name[:100]!r} is not the name of an image here: lower-case letters and digits, with"
            f" . _ or - between, at most {_MOST_NAME}"
        )
    return f"{namespace}/{name}"


@dataclass(frozen=True)
class SignedPull:
    """The provider of *lease* pulls from *repository* of *registry* (``host[:port]``), until
    *until_ms*.
    """

    registry: str
    repository: str
    lease: str
    until_ms: int
    signature: bytes

    @staticmethod
    def _message(registry: str, repository: str, lease: str, until_ms: int) -> bytes:
        return encode([_TAG, registry, repository, lease, until_ms])

    @classmethod
    def sign(
        cls, signer: Signer, registry: str, repository: str, lease: str, until_ms: int
    ) -> SignedPull:
        """By the provider's metering key, which is its name."""
        message = cls._message(registry, repository, lease, until_ms)
        return cls(registry, repository, lease, until_ms, signer.sign(message))

    def by(self, verify_key: bytes) -> bool:
        """Whether *verify_key* signed it."""
        message = self._message(self.registry, self.repository, self.lease, self.until_ms)
        return verifies(verify_key, message, self.signature)

    @property
    def password(self) -> str:
        """As a registry's client sends it; what it is for is said beside it."""
        return f"{self.lease}.{self.until_ms}.{self.signature.hex()}"

    @classmethod
    def read(cls, password: str, registry: str, repository: str) -> SignedPull:
        """What *password* says of *repository*; :class:`Malformed`."""
        parts = password.split(".")
        if len(password) > 400 or len(parts) != 3 or not re.fullmatch(r"[0-9]{1,15}", parts[1]):
            raise Malformed("this is no signed pull")
        try:
            signature = bytes.fromhex(parts[2])
        except ValueError:
            raise Malformed("this is no signed pull") from None
        return cls(registry, repository, parts[0], int(parts[1]), signature)
