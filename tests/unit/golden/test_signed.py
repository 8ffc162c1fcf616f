"""What is signed or hashed, every field filled: its bytes, and that they read as they did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

from marketplace.domain import canonical
from marketplace.domain.money.receipt import Receipt
from marketplace.domain.money.terms import Terms
from marketplace.domain.supply.offer import Offer
from marketplace.domain.work.job import JobSpec, Resources
from marketplace.domain.work.workload import Egress, EgressMode
from tests.unit.support.golden import golden, pinned
from tests.unit.support.pinned import JOB, OFFER, RECEIPT, TERMS

LEAST = JobSpec("a name", "", ("true",), (Resources(),))


def jobs() -> dict[str, JobSpec]:
    """The least job, one with each field changed, and one with all of them."""
    found = {
        "least": LEAST,
        "all": JOB,
        "egress open": replace(LEAST, egress=Egress(EgressMode.OPEN)),
    }
    for field in fields(JobSpec):
        found[field.name] = replace(LEAST, **{field.name: getattr(JOB, field.name)})
    return found


def test_terms_receipts_and_offers_keep_their_bytes() -> None:
    made = {"terms": TERMS.encode(), "receipt": RECEIPT.encode(),
            "offer": canonical.encode(OFFER.to_wire())}  # fmt: skip
    readers: dict[str, Callable[[bytes], object]] = {
        "terms": Terms.decode,
        "receipt": Receipt.decode,
        "offer": lambda data: Offer.from_wire(canonical.decode(data)),
    }
    pinned("signed.json", made, lambda name, data: readers[name](data))


def test_every_job_keeps_its_canonical_bytes() -> None:
    made = {name: canonical.encode(job.to_wire()) for name, job in jobs().items()}
    pinned("jobs.json", made, lambda _, data: JobSpec.from_wire(canonical.decode(data)))


def test_every_job_keeps_its_hash() -> None:
    """What ``Terms.work`` names: of the job as it is, and as its canonical bytes read."""
    for job in jobs().values():
        assert JobSpec.from_wire(canonical.decode(canonical.encode(job.to_wire()))).hash == job.hash
    golden("job_hashes.json", {name: job.hash.hex() for name, job in jobs().items()})
