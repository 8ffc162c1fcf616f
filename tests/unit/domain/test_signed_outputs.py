"""A provider's signature over what a workload gave back, and who would put another file there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adapter.core.events import Collected
from marketplace.client.net.answers import OutputAnswer
from marketplace.client.sdk.outputs import prove
from marketplace.domain.errors import Malformed
from marketplace.domain.keys import Signer
from marketplace.domain.money.evidence import Evidence, LeaseEvidence
from marketplace.domain.money.terms import SignedTerms, Terms
from marketplace.domain.protocol import wire
from marketplace.domain.work.output import OutputUnproven, SignedOutput, terms_hash
from tests.unit.support.adapter import ADAPTER, SESSION, Bench, core_job, terms_for

PATH, NAME, SIZE = "/workspace/*", "ab" * 32, 12
OTHER = Signer(b"\x77" * 32)


def agreed(terms: Terms, adapter: Signer = ADAPTER, session: Signer = SESSION) -> SignedTerms:
    body = terms.encode()
    return SignedTerms(body, adapter.sign(body), session.sign(body))


def evidence(*signed: SignedTerms, job: str = "job_1") -> Evidence:
    leases = tuple(LeaseEvidence(one.terms.session_vk, one) for one in signed)
    return Evidence(job, leases, ())


TERMS = terms_for(Bench().own.offer, core_job())


def said(signed: SignedTerms, by: Signer = ADAPTER, name: str = NAME) -> OutputAnswer:
    done = SignedOutput.sign(by, terms_hash(signed.body), PATH, name, SIZE)
    return {
        "path": PATH, "sha256": name, "size": SIZE, "lease": signed.terms.lease,
        "signature": done.signature.hex(),
    }  # fmt: skip


def refused(item: OutputAnswer, *signed: SignedTerms) -> str:
    with pytest.raises(OutputUnproven) as caught:
        prove([item], evidence(*signed, job=TERMS.job), [SESSION.verify_key])
    return caught.value.message


def test_what_the_provider_of_the_terms_signed_is_proven() -> None:
    signed = agreed(TERMS)
    prove([said(signed)], evidence(signed, job=TERMS.job), [SESSION.verify_key])
    prove([], evidence(job=TERMS.job), [])


@pytest.mark.parametrize(
    "change", [{"path": "/workspace/x"}, {"sha256": "cd" * 32}, {"size": SIZE + 1}]
)
def test_a_market_puts_no_other_file_there(change: dict[str, object]) -> None:
    signed = agreed(TERMS)
    item: OutputAnswer = {**said(signed), **change}  # pyright: ignore[reportAssignmentType] -- one of its fields, of its kind
    assert "did not sign" in refused(item, signed)


def test_nor_a_file_of_another_lease_of_the_same_two() -> None:
    signed, before = agreed(TERMS), agreed(replace(TERMS, lease="lease_0", job="job_0"))
    old = said(before)
    assert "did not sign" in refused({**old, "lease": TERMS.lease}, signed)
    assert "no lease that this purse agreed to" in refused(old, signed, before)  # another job's


def test_nor_one_of_terms_that_this_purse_never_agreed_to() -> None:
    """A market can be provider and consumer of terms of its own making."""
    own = replace(TERMS, adapter_vk=OTHER.verify_key, session_vk=OTHER.verify_key)
    forged = agreed(own, OTHER, OTHER)
    assert "no lease that this purse agreed to" in refused(said(forged, OTHER), forged)
    mine = agreed(replace(TERMS, adapter_vk=OTHER.verify_key), OTHER, OTHER)  # not our signature
    assert "no lease that this purse agreed to" in refused(said(mine, OTHER), mine)
    assert "did not sign" in refused(said(agreed(TERMS), OTHER), agreed(TERMS))


def test_what_is_unsigned_or_odd_is_unproven() -> None:
    signed = agreed(TERMS)
    item = said(signed)
    assert "nobody signed it" in refused({**item, "signature": ""}, signed)
    assert "not hex" in refused({**item, "signature": "zz"}, signed)
    bare: OutputAnswer = {"path": PATH, "sha256": NAME, "size": SIZE}  # a market of before
    assert "no lease" in refused(bare, signed)
    with pytest.raises(Malformed):
        prove(
            [{**item, "sha256": "no hash"}], evidence(signed, job=TERMS.job), [SESSION.verify_key]
        )


def test_the_adapter_signs_what_it_collected() -> None:
    bench = Bench()
    bench.running(core_job())
    bench.exit()
    bench.do(Collected("lease_1", PATH, NAME, SIZE))
    (ready,) = [one for one in bench.sent() if isinstance(one, wire.OutputReady)]
    body = bench.lease().signed.body
    SignedOutput(terms_hash(body), PATH, NAME, SIZE, ready.signature).verify(ADAPTER.verify_key)
