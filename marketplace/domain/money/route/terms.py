"""Terms of a routed lease: those of a direct one, and the route that pays for it.

Their ``session_vk`` is the lease's own key, made for this lease alone: it signs the terms and names
the receipts, and never a voucher. ``adapter_vkh``, ``payout``, ``close_period_ms`` and ``fee_bps``
are those of the router's channel to the provider. The tag is another than that of direct terms, and
:meth:`Terms.decode` does not read them: who knows nothing of routes can sign none by mistake.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from marketplace.domain import canonical
from marketplace.domain.canonical import want_bytes
from marketplace.domain.money.terms import TAG, SignedTerms, Terms

ROUTED_TAG: Final = "tally/terms/v2"
_LENGTH: Final = 25


@dataclass(frozen=True)
class RoutedTerms:
    """*terms*, paid over the route that hashes to *route* (32 bytes)."""

    terms: Terms
    route: bytes

    def encode(self) -> bytes:
        """The canonical bytes that both sign."""
        return canonical.encode([ROUTED_TAG, *self.terms.fields(), self.route])

    @staticmethod
    def decode(data: bytes) -> RoutedTerms:
        """The reverse; :class:`Malformed` for anything else."""
        *fields, route = canonical.decode_tagged(data, ROUTED_TAG, _LENGTH)
        direct = Terms.decode(canonical.encode([TAG, *fields]))
        return RoutedTerms(direct, want_bytes(route, 32, "route"))

    @property
    def hash(self) -> bytes:
        """blake2b_256 of the encoding: what the lease's leaf in a hop is under."""
        return canonical.blake2b_256(self.encode())


@dataclass(frozen=True)
class SignedRoutedTerms(SignedTerms):
    """As :class:`SignedTerms`, of a routed lease: its ``terms`` are those that they hold."""

    @property
    def routed(self) -> RoutedTerms:
        """The decoded agreement, with its route."""
        return RoutedTerms.decode(self.body)

    @property
    def terms(self) -> Terms:
        """The decoded agreement, without."""
        return self.routed.terms


def either(signed: SignedTerms) -> SignedTerms:
    """*signed* as what its bytes say that it is: for whoever serves or buys both kinds."""
    if not is_routed(signed.body):
        return signed
    return SignedRoutedTerms(signed.body, signed.adapter_signature, signed.session_signature)


def is_routed(body: bytes) -> bool:
    """Whether *body* says that it is terms of a routed lease; whether it reads as such is not
    asked.
    """
    tag = ROUTED_TAG.encode()
    return body[2:].startswith(bytes([0x60 | len(tag)]) + tag)
