"""Ports of a workload that its provider opens at an address of its own, and its word of where.

A market that named another machine there would have its owner's peers talk to that one: the adapter
signs the address, and whoever rents the ports believes no other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from marketplace.domain import canonical
from marketplace.domain.canonical import want_bytes, want_int, want_text
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.keys import Signer, verifies

STAGE: Final = "DIRECT_PORTS"
"""The step of a lease's story that says so."""
MOST: Final = 16
_TAG: Final = "tally/direct-ports/v1"
_ADDRESS: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:]{2,45}")


class DirectPortsUnproven(Refusal):
    """An address that the provider of the lease's terms did not sign."""

    code = "DIRECT_PORTS_UNPROVEN"
    remedy = "do not use it: `tally job forward` still reaches the port, through the market"


def want_address(value: object) -> str:
    """A host's name or IP address, without a port; :class:`Malformed`."""
    text = want_text(value, "address", 253)
    if not _ADDRESS.fullmatch(text):
        raise Malformed(f"{text[:80]!r} is neither a host's name nor an IP address")
    return text


@dataclass(frozen=True)
class DirectPorts:
    """*ports*: pairs of a port of *lease*'s workload and the one at *address* that leads to it;
    *at_ms*: when its provider said so (UTC). Of several the latest is true.
    """

    lease: str
    address: str
    ports: tuple[tuple[int, int], ...]
    at_ms: int
    signature: bytes = b""

    def message(self) -> bytes:
        """What is signed: canonical CBOR under its own tag."""
        pairs = [list(pair) for pair in self.ports]
        return canonical.encode([_TAG, self.lease, self.address, pairs, self.at_ms])

    @staticmethod
    def sign(
        adapter: Signer, lease: str, address: str, ports: tuple[tuple[int, int], ...], at_ms: int
    ) -> DirectPorts:
        """By the adapter's metering key (``Terms.adapter_vk``)."""
        said = DirectPorts(lease, address, ports, at_ms)
        return DirectPorts(lease, address, ports, at_ms, adapter.sign(said.message()))

    def verify(self, adapter_vk: bytes) -> None:
        """:class:`DirectPortsUnproven` unless *adapter_vk* signed it."""
        if not verifies(adapter_vk, self.message(), self.signature):
            raise DirectPortsUnproven(f"the provider of {self.lease} did not sign {self.address}")

    @property
    def places(self) -> dict[int, str]:
        """``HOST:PORT`` by the workload's port; an IPv6 address in brackets."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return {inner: f"{host}:{outer}" for inner, outer in self.ports}

    def detail(self) -> dict[str, Any]:
        """The facts of the story's step; the reverse is :meth:`from_story`."""
        return {
            "address": self.address,
            "ports": " ".join(f"{inner}:{outer}" for inner, outer in self.ports),
            "said_at_ms": self.at_ms,
            "signature": self.signature.hex(),
        }

    @staticmethod
    def from_story(lease: str, detail: Mapping[str, Any]) -> DirectPorts:
        """What a step of *lease*'s story says; :class:`Malformed`."""
        pairs = want_text(detail.get("ports"), "ports", 300).split()
        if len(pairs) > MOST:
            raise Malformed(f"{len(pairs)} direct ports; at most {MOST}")
        try:
            signature = bytes.fromhex(want_text(detail.get("signature"), "signature", 128))
        except ValueError:
            raise Malformed("signature is not hex") from None
        return DirectPorts(
            lease,
            want_address(detail.get("address")),
            tuple(map(_pair, pairs)),
            want_int(detail.get("said_at_ms"), "said_at_ms"),
            want_bytes(signature, 64, "signature"),
        )


def _pair(text: str) -> tuple[int, int]:
    inner, _, outer = text.partition(":")
    if not (inner.isascii() and inner.isdecimal() and outer.isascii() and outer.isdecimal()):
        raise Malformed(f"{text[:40]!r} is no pair of ports")
    return want_int(int(inner), "port", 1, 65_535), want_int(int(outer), "port", 1, 65_535)
