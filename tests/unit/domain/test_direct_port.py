"""A provider's word of where a workload's ports are, and who would have them elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marketplace.client.net.answers import EventAnswer
from marketplace.client.sdk.direct import proven
from marketplace.domain.errors import Malformed
from marketplace.domain.keys import Signer
from marketplace.domain.money.evidence import Evidence, LeaseEvidence
from marketplace.domain.money.terms import SignedTerms
from marketplace.domain.work.direct_port import (
    MOST,
    STAGE,
    DirectPorts,
    DirectPortsUnproven,
    want_address,
)
from marketplace.domain.work.parts import Port
from tests.unit.support.adapter import ADAPTER, SESSION, Bench, core_job, terms_for

PAIRS = ((3001, 30_000), (12_798, 30_007))
OTHER = Signer(b"\x77" * 32)
TERMS = terms_for(Bench().own.offer, core_job())


def said(address: str = "203.0.113.7", at_ms: int = 5, by: Signer = ADAPTER) -> DirectPorts:
    return DirectPorts.sign(by, TERMS.lease, address, PAIRS, at_ms)


def event(one: DirectPorts, lease: str = TERMS.lease, kind: str = STAGE) -> EventAnswer:
    return {
        "id": "e", "job": TERMS.job, "lease": lease, "at_ms": 9, "kind": kind,
        "detail": one.detail(),
    }  # fmt: skip


def evidence(adapter: Signer = ADAPTER, session: Signer = SESSION) -> Evidence:
    terms = replace(TERMS, adapter_vk=adapter.verify_key, session_vk=session.verify_key)
    body = terms.encode()
    signed = SignedTerms(body, adapter.sign(body), session.sign(body))
    return Evidence(TERMS.job, (LeaseEvidence(terms.session_vk, signed),), ())


def found(*events: EventAnswer, of: Evidence | None = None) -> DirectPorts | None:
    return proven(events, TERMS.lease, of or evidence(), [SESSION.verify_key])


def test_a_signed_address_comes_back_as_it_was_signed() -> None:
    one = said()
    assert DirectPorts.from_story(TERMS.lease, one.detail()) == one
    one.verify(ADAPTER.verify_key)
    assert one.places == {3001: "203.0.113.7:30000", 12_798: "203.0.113.7:30007"}
    assert said("2001:db8::7").places[3001] == "[2001:db8::7]:30000"
    assert all(isinstance(value, (str, int)) for value in one.detail().values())  # the story's rule


@pytest.mark.parametrize(
    "change",
    [{"address": "198.51.100.1"}, {"ports": ((3001, 30_001),)}, {"at_ms": 6}, {"lease": "other"}],
)
def test_nothing_of_it_can_be_another(change: dict[str, object]) -> None:
    """A market would have an operator's peers talk to a machine of its own."""
    with pytest.raises(DirectPortsUnproven):
        replace(said(), **change).verify(ADAPTER.verify_key)  # pyright: ignore[reportArgumentType]


def test_the_latest_word_is_true_in_whatever_order_a_market_tells_them() -> None:
    old, new = said("203.0.113.7", 5), said("203.0.113.9", 6)
    for story in ((old, new), (new, old)):
        assert found(*map(event, story)) == new
    assert found() is None
    assert found(event(new, lease="lease_of_before")) is None
    assert found(event(new, kind="RENEWED")) is None


@pytest.mark.parametrize(
    "story",
    [
        (event(said(by=OTHER)),),
        (event(said()), event(said("198.51.100.1", 99, by=OTHER))),
        (event(said("198.51.100.1", 1, by=OTHER)), event(said())),
    ],
)
def test_a_word_that_its_provider_did_not_sign_is_refused_and_not_left_out(
    story: tuple[EventAnswer, ...],
) -> None:
    with pytest.raises(DirectPortsUnproven):
        found(*story)


def test_terms_that_this_purse_did_not_agree_to_prove_nothing() -> None:
    """A market that shows terms of its own key, and an address that is signed with it."""
    forged = event(said("198.51.100.1", by=OTHER))
    with pytest.raises(DirectPortsUnproven):
        found(forged, of=evidence(adapter=OTHER, session=OTHER))
    with pytest.raises(DirectPortsUnproven):
        found(forged, of=Evidence(TERMS.job, (), ()))


@pytest.mark.parametrize(
    "detail",
    [
        {},
        {"address": "a b"},
        {"address": "-x"},
        {"address": ""},
        {"address": "x" * 300},
        {"address": "evil.example/`id`"},
        {"ports": "3001"},
        {"ports": "3001:0"},
        {"ports": "3001:70000"},
        {"ports": "3001:٣"},
        {"ports": " ".join(["1:1"] * (MOST + 1))},
        {"ports": 5},
        {"said_at_ms": "5"},
        {"said_at_ms": True},
        {"signature": "zz"},
        {"signature": "ab"},
    ],
)
def test_what_is_no_such_word_is_malformed(detail: dict[str, object]) -> None:
    whole = {**said().detail(), **detail} if detail else {}
    with pytest.raises(Malformed):
        DirectPorts.from_story(TERMS.lease, whole)


@pytest.mark.parametrize("text", ["203.0.113.7", "relay1.example", "x", "2001:db8::1", "::1"])
def test_names_and_addresses_are_taken(text: str) -> None:
    assert want_address(text) == text


def test_a_port_says_that_it_is_direct_only_where_it_is() -> None:
    plain, direct = Port(3001), Port(3001, direct=True)
    assert plain.to_wire() == {"port": 3001, "auth": "token"}
    assert [Port.from_wire(one.to_wire()) for one in (plain, direct)] == [plain, direct]
    for wrong in (False, 1, "yes", None):
        with pytest.raises(Malformed):
            Port.from_wire({"port": 3001, "auth": "token", "direct": wrong})
