"""A provider on paper: terms, and receipts that follow from one another unless a test lies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from marketplace.domain.keys import Signer
from marketplace.domain.money.receipt import GENESIS, Lost, Receipt, SignedReceipt
from marketplace.domain.money.terms import SignedTerms, Terms
from marketplace.domain.units import owed, unit_ms

ADAPTER = Signer(b"\x01" * 32)
SESSION = Signer(b"\x02" * 32)
CONSUMER = Signer(b"\x03" * 32)
DEVICES = b"\x44" * 32


def terms(lease: str = "lease_1", **more: Any) -> Terms:
    """One GPU at 2000 lovelace a second, ticks of a second, 10 ADA at most."""
    fields: dict[str, Any] = {
        "magic": 42, "lease": lease, "job": "job_1", "offer": "offer_1",
        "provider": ADAPTER.verify_key.hex(), "adapter_vk": ADAPTER.verify_key,
        "adapter_vkh": ADAPTER.key_hash, "payout": b"\x07" * 28, "session_vk": SESSION.verify_key,
        "consumer_vkh": CONSUMER.key_hash, "resource": "gpu", "rate_micro": 2_000_000_000,
        "units_milli": 1000, "tick_ms": 1000, "grace_ms": 2000, "pause_limit_ms": 60_000,
        "close_period_ms": 60_000, "fee_bps": 50, "ceiling": 10_000_000,
        "max_duration_ms": 3_600_000, "asset": "", "work": b"\x05" * 32, "devices": DEVICES,
        "expires_at_ms": 2_000_000_000_000,
    }  # fmt: skip
    return Terms(**{**fields, **more})


def signed_terms(agreed: Terms) -> SignedTerms:
    body = agreed.encode()
    return SignedTerms(body, ADAPTER.sign(body), SESSION.sign(body))


@dataclass
class Paper:
    """The receipts of one channel. *lie* replaces fields of a receipt, which then counts for
    nothing.
    """

    last: Receipt | None = None
    leases: dict[str, Receipt] = field(default_factory=dict)
    sent: list[SignedReceipt] = field(default_factory=list)

    def tick(
        self, agreed: Terms, ms: int, *, lost: tuple[Lost, ...] = (), final: bool = False,
        adapter: Signer = ADAPTER, billed: int | None = None, **lie: Any,
    ) -> SignedReceipt:  # fmt: skip
        before = self.leases.get(agreed.lease)
        start = before.t1_ms if before else 0
        units = (before.unit_ms_total if before else 0) + unit_ms(
            ms if billed is None else billed, agreed.units_milli
        )
        due = owed(units, agreed.rate_micro)
        receipt = Receipt(
            session_vk=agreed.session_vk,
            lease=agreed.lease,
            seq=self.last.seq + 1 if self.last else 1,
            t0_ms=start,
            t1_ms=start + ms,
            wall_ms=1_800_000_000_000 + start + ms,
            device=agreed.devices,
            resource=agreed.resource,
            unit_ms_total=units,
            lease_owed=due,
            channel_owed=(self.last.channel_owed if self.last else 0)
            + due
            - (before.lease_owed if before else 0),
            lost=lost,
            readings=bytes(32),
            previous=self.last.hash if self.last else GENESIS,
            final=final,
        )
        if lie:
            return SignedReceipt.sign(replace(receipt, **lie), adapter)
        signed = SignedReceipt.sign(receipt, adapter)
        self.last = self.leases[agreed.lease] = receipt
        self.sent.append(signed)
        return signed
