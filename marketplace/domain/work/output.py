"""A file that a workload gave back, and its provider's signature over it.

Whoever passes outputs on (a market, its disk, whoever serves layers) could put another file in
their place. Who runs a workload can of course give back what it likes: the signature says that it
was that one, for good.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from marketplace.domain import canonical
from marketplace.domain.canonical import blake2b_256, want_bytes, want_int
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.keys import Signer, verifies

_TAG: Final = "tally/output/v1"


class OutputUnproven(Refusal):
    """An output that the provider of the lease's terms did not sign."""

    code = "OUTPUT_UNPROVEN"
    remedy = (
        "`tally job outputs ID FOLDER` fetches it all the same; look at it before you run anything"
        " of it"
    )


@dataclass(frozen=True)
class SignedOutput:
    """*path* in the workload; *sha256* of its bytes, hex; *size* in bytes. *terms*: the hash of the
    lease's terms (:func:`terms_hash`), so that it is of this lease, provider and consumer alone.
    """

    terms: bytes
    path: str
    sha256: str
    size: int
    signature: bytes

    @staticmethod
    def message(terms: bytes, path: str, sha256: str, size: int) -> bytes:
        """What is signed: canonical CBOR under its own tag."""
        try:
            name = want_bytes(bytes.fromhex(sha256), 32, "sha256")
        except ValueError as error:
            raise Malformed("sha256 is not hex") from error
        return canonical.encode([_TAG, want_bytes(terms, 32, "terms"), path, name, size])

    @staticmethod
    def sign(adapter: Signer, terms: bytes, path: str, sha256: str, size: int) -> SignedOutput:
        """By the adapter's metering key (``Terms.adapter_vk``)."""
        want_int(size, "size")
        message = SignedOutput.message(terms, path, sha256, size)
        return SignedOutput(terms, path, sha256, size, adapter.sign(message))

    def verify(self, adapter_vk: bytes) -> None:
        """:class:`OutputUnproven` unless *adapter_vk* signed it."""
        message = SignedOutput.message(self.terms, self.path, self.sha256, self.size)
        if not verifies(adapter_vk, message, self.signature):
            raise OutputUnproven(f"the provider of the lease did not sign output {self.path[:200]}")


def terms_hash(body: bytes) -> bytes:
    """Of a lease's terms as they were signed, over a route or not."""
    return blake2b_256(body)
