"""What is signed or hashed, every field filled: its bytes, and that they read as they did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

from marketplace.domain import canonical
from marketplace.domain.money.receipt import Receipt
from marketplace.domain.money.terms import Terms
from marketplace.domain.supply.offer import Offer
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import Resources
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


def versions(job: JobSpec) -> dict[str, JobSpec]:
    """*job* in each form that a job ever had, by what is added to its name."""
    return {"": job, ", version 1": replace(job, version=1)}


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
    for one in (one for job in jobs().values() for one in versions(job).values()):
        assert JobSpec.from_wire(canonical.decode(canonical.encode(one.to_wire()))) == one
    hashes = {
        name + version: one.hash.hex()
        for name, job in jobs().items()
        for version, one in versions(job).items()
    }
    golden("job_hashes.json", hashes)
