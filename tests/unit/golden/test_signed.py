"""What is signed or hashed, every field filled: its bytes, and that they read as they did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

from marketplace.domain import canonical
from marketplace.domain.money.receipt import Receipt
from marketplace.domain.money.route.leaves import Leaf, root
from marketplace.domain.money.route.offer import RouterOffer
from marketplace.domain.money.route.paid import Paid
from marketplace.domain.money.route.route import Route, commit
from marketplace.domain.money.route.statement import Statement
from marketplace.domain.money.route.terms import RoutedTerms
from marketplace.domain.money.terms import Terms
from marketplace.domain.supply.offer import Offer
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.output import SignedOutput
from marketplace.domain.work.parts import Resources
from marketplace.domain.work.workload import Egress, EgressMode
from tests.unit.support.golden import filled, golden, pinned
from tests.unit.support.pinned import JOB, OFFER, RECEIPT, TERMS

BPS = {"route_bps": 133}
HASHES = {"adapter_vkh": b"\x0d" * 28, "payout": b"\x0e" * 28}
ROUTED: dict[str, RoutedTerms | Route | RouterOffer | Statement] = {
    "routed terms": RoutedTerms(TERMS, bytes(range(32))),
    "route": filled(Route, BPS),
    "router": filled(RouterOffer, BPS | HASHES),
    "statement": filled(Statement),
}
LEAVES = [Leaf(bytes([i]) * 32, 10**i) for i in range(1, 8)]
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
    own = {"gang": JOB.gang, "secrets": JOB.secrets}  # it is one, and these open its store
    found["cluster"] = replace(found["cluster"], **own)
    found["roles"] = replace(found["roles"], **own, cluster=JOB.cluster)
    found["member of a role"] = found["roles"].members()[1]
    found["relay"] = replace(found["relay"], ports=JOB.ports)  # which it has to be among
    return found


def versions(job: JobSpec) -> dict[str, JobSpec]:
    """*job* in each form that a job ever had, by what is added to its name; the first had no place
    for what a wait is worth, a relay, volumes and what they may cost, a cluster and its roles.
    """
    price = replace(job.price, wait_rate=None, max_disk_rate=0)
    ports = tuple(replace(one, direct=False) for one in job.ports)
    before = replace(job, version=1, price=price, relay=None, volumes=(), ports=ports)
    before = replace(before, cluster=None, roles=())
    return {"": job, ", version 1": before}


def test_terms_receipts_and_offers_keep_their_bytes() -> None:
    made = {"terms": TERMS.encode(), "receipt": RECEIPT.encode(),
            "offer": canonical.encode(OFFER.to_wire()),
            **{name: one.encode() for name, one in ROUTED.items()}}  # fmt: skip
    readers: dict[str, Callable[[bytes], object]] = {
        **{name: type(one).decode for name, one in ROUTED.items()},
        "terms": Terms.decode,
        "receipt": Receipt.decode,
        "offer": lambda data: Offer.from_wire(canonical.decode(data)),
    }
    pinned("signed.json", made, lambda name, data: readers[name](data))


def test_what_else_is_hashed_or_signed_keeps_its_bytes() -> None:
    """A commitment, a Paid, the roots over 1 to 7 leaves; and what a workload gave back."""
    golden(
        "routes.json",
        {
            "commit": commit(bytes(range(32)), bytes(32)).hex(),
            "output": SignedOutput.message(bytes(range(32)), "/workspace/*", "ab" * 32, 7).hex(),
            "paid": Paid.message(bytes(range(32)), "lease_1", 123_456_789).hex(),
            "roots": [root(LEAVES[: i + 1]).hex() for i in range(len(LEAVES))],
        },
    )


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
