"""A market's answers on paper."""

from __future__ import annotations

from typing import Any

from marketplace.client.net.answers import JobAnswer, OfferAnswer
from marketplace.client.net.reading import read


def plain_job(**more: Any) -> dict[str, Any]:
    """A quoted job as the API shows it; *more* replaces fields."""
    fields: dict[str, Any] = {
        "id": "job_1", "name": "job", "kind": "job", "state": "QUOTED", "reason": "",
        "message": "", "needs": "", "created_at_ms": 1, "started_at_ms": 0, "finished_at_ms": 0,
        "spec": {}, "lease": "lease_1", "leases": ["lease_1"], "provider": "ab" * 32,
        "exit_code": None, "retries": 0, "gang": "", "spent": 0, "budget": 1, "explain": {},
        "simulated": False, "ceiling": 0, "rate_micro": 0, "resource": "core", "device": "",
        "channel": "", "unit_ms": 0, "ticks": 0, "transactions": [], "quote": None,
    }  # fmt: skip
    return {**fields, **more}


def job_answer(**more: Any) -> JobAnswer:
    """A quoted job through the client's door; *more* replaces fields."""
    return read(JobAnswer, plain_job(**more), "job")


def offer_answer(**more: Any) -> OfferAnswer:
    """Standing cores and no GPU, through the client's door; *more* replaces fields."""
    fields: dict[str, Any] = {
        "id": "offer_1", "provider": "ab" * 32, "region": "EU", "labels": {},
        "isolation": ["container"], "trust": 1, "core_rate_micro": 5_000_000,
        "cpu": {"model": "EPYC", "milli": 8000}, "memory_mib": 32_768, "disk_mib": 1000,
        "gpus": [], "egress": False,
    }  # fmt: skip
    return read(OfferAnswer, {**fields, **more}, "offer")
