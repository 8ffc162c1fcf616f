"""What a router may ask a provider to sign, and what it may not: each refusal with its code."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adapter.core.events import Passed
from adapter.core.route_admission import SKEW_MS
from adapter.core.wish import Wish
from marketplace.domain.canonical import blake2b_256
from marketplace.domain.keys import Signer
from marketplace.domain.money.route.route import commit
from marketplace.domain.money.route.terms import RoutedTerms
from marketplace.domain.money.terms import SignedTerms
from marketplace.domain.protocol import wire
from marketplace.domain.work.lease import LeaseState
from tests.unit.support.adapter import core_job, gpu_job, member_job, offer, terms_for
from tests.unit.support.hop_out import HOP, SALT, Over, key_of, said

STRANGER = Signer(b"\x3f" * 32)


def bent(bench: Over) -> dict[str, tuple[wire.RouteProposed, str]]:
    """Proposals that break one rule, each with the code that it is declined with."""
    good = bench.asked()
    route = {
        "another lease": {"lease": "lease_2"},
        "another key": {"lease_vk": STRANGER.verify_key},
        "another network": {"magic": 43},
        "another router's key": {"router_vk": STRANGER.verify_key},
        "hops too slow": {"hop_ms": 251},
    }
    direct = terms_for(bench.own.offer, core_job()).encode()
    return {
        **{way: (bench.asked(route=more), "ROUTE_REFUSED") for way, more in route.items()},
        "route of another quote": (
            replace(good, terms=bench.asked(rate_micro=11_000_000).terms[:-32] + bytes(32)),
            "ROUTE_REFUSED",
        ),
        "no route": (replace(good, route=b""), "MALFORMED"),
        "unsigned route": (replace(good, route_signature=bytes(64)), "ROUTE_REFUSED"),
        "commitment to another hop": (
            bench.asked(route={"out_commit": commit(STRANGER.verify_key, SALT)}), "ROUTE_REFUSED",
        ),
        "another salt": (replace(good, salt=bytes(32)), "ROUTE_REFUSED"),
        "no salt": (replace(good, salt=b""), "MALFORMED"),
        "hop that is not there": (
            replace(
                bench.asked(route={"out_commit": commit(STRANGER.verify_key, SALT)}),
                hop=STRANGER.verify_key,
            ),
            "HOP_UNSEEN",
        ),
        "downgrade": (replace(good, terms=direct), "MALFORMED"),
        "consumer that is not the lease's key": (
            bench.asked(consumer_vkh=b"\x14" * 28), "ROUTE_REFUSED",
        ),
        "reserve below a tick": (bench.asked(route={"reserve": 20}), "CEILING_ODD"),
        "another payout": (bench.asked(payout=b"\x19" * 28), "PAYOUT_DIFFERS"),
        "a cluster's member": (bench.asked(job=member_job()), "CLUSTER_ROUTED"),
        "another job": (replace(good, job=gpu_job()), "WORK_DIFFERS"),
        "another lease's name": (replace(good, lease="lease_9"), "LEASE_CONFLICT"),
    }  # fmt: skip


@pytest.mark.parametrize("way", bent(Over()))
def test_what_breaks_a_rule_is_declined_and_books_nothing(way: str) -> None:
    bench = Over().opened()
    asked, code = bent(bench)[way]
    assert bench.declined(asked) == code
    assert bench.state.leases == {} and bench.hop.leases == {}
    assert bench.declined(bench.asked()) == ""


def test_a_hop_that_no_block_holds_is_unseen_and_looked_for() -> None:
    bench = Over()
    assert bench.declined(bench.asked()) == "HOP_UNSEEN"
    bench.hear(said())
    assert bench.declined(bench.asked()) == "HOP_UNSEEN"
    bench.sight(HOP)
    assert bench.declined(bench.asked()) == ""


def test_a_hop_that_was_not_looked_at_for_too_long_is_unseen() -> None:
    bench = Over().opened()
    close = bench.own.offer.close_period_ms
    bench.boot_ms += close // 2 + 1
    late = bench.now.wall_ms + 60_000
    asked = bench.asked(route={"expires_at_ms": late}, expires_at_ms=late)
    assert bench.declined(asked) == "HOP_UNSEEN"
    bench.sight(HOP)
    assert bench.declined(asked) == ""


def test_skew() -> None:
    """The wall clock decides on admission alone, and a minute either way is no matter."""
    bench = Over().opened()
    now = bench.now.wall_ms
    just = bench.asked("lease_1", route={"expires_at_ms": now - SKEW_MS + 1})
    late = bench.asked("lease_2", route={"expires_at_ms": now - SKEW_MS})
    assert (bench.declined(just), bench.declined(late)) == ("", "QUOTE_EXPIRED")


def test_the_offers_of_another_day_are_not_the_hops() -> None:
    """The owner has another payout now: the hop still pays the old one, so nothing is signed on it."""
    bench = Over().opened()
    bench.own = replace(bench.own, offer=offer(payout=b"\x55" * 28))
    assert bench.declined(bench.asked()) == "CHANNEL_DIFFERS"


def test_a_hop_that_cannot_bring_its_end_is_refused() -> None:
    bench = Over(own=replace(Over().own, offer=offer(minimum=300_000)), capacity=200_000).opened()
    assert bench.declined(bench.asked()) == "BELOW_MINIMUM"
    bench.capacity = 400_000
    bench.sight(HOP)
    assert bench.declined(bench.asked()) == ""


def test_a_draining_adapter_signs_none() -> None:
    bench = Over().opened()
    bench.state = replace(bench.state, draining=True)
    assert bench.declined(bench.asked()) == "DRAINING"


# ---- one key, one chain --------------------------------------------------------------------------


def reused(bench: Over, lease: str) -> wire.RouteProposed:
    """A proposal for another lease under the first one's key."""
    key = key_of("lease_1")
    return bench.asked(
        lease, route={"lease_vk": key.verify_key}, session_vk=key.verify_key,
        consumer_vkh=key.key_hash,
    )  # fmt: skip


def test_a_leases_key_is_used_once() -> None:
    """Two chains of receipts under one key would be proof against the provider who signed both."""
    bench = Over().opened().begun()
    assert bench.declined(reused(bench, "lease_2")) == "ROUTE_KEY_USED"
    bench.tick()
    bench.exit()
    bench.pay()
    bench.clear()
    assert bench.declined(reused(bench, "lease_2")) == "ROUTE_KEY_USED"
    bench.propose(core_job(), "lease_3", key_of("lease_1"))
    answer = bench.answer()
    assert isinstance(answer, wire.LeaseDeclined) and answer.code == "CHANNEL_DIFFERS"


def test_a_channels_key_is_no_leases() -> None:
    bench = Over().opened()
    key = key_of("lease_1")
    bench.propose(core_job(), "direct", key, ceiling=10_000)
    assert bench.declined(reused(bench, "lease_2")) == "ROUTE_KEY_USED"  # while it is a quote
    bench.sign("direct", key)
    bench.sight(key)
    assert bench.lease("direct").wish is Wish.RUN
    assert bench.declined(reused(bench, "lease_2")) == "ROUTE_KEY_USED"


def test_a_hop_is_no_channel_of_a_consumers() -> None:
    bench = Over().opened()
    bench.propose(core_job(), "lease_2", HOP)
    answer = bench.answer()
    assert isinstance(answer, wire.LeaseDeclined) and answer.code == "CHANNEL_DIFFERS"


def test_a_key_that_a_quote_is_for_becomes_no_hop() -> None:
    bench = Over()
    bench.propose(core_job(), "direct", HOP)
    bench.hear(said())
    assert bench.state.channels == {} and bench.alarmed() == ["HOP_REFUSED"]
    bench.sign("direct", HOP)
    bench.hear(said())
    assert bench.channel.hop is None and len(bench.alarmed()) == 2


# ---- signatures ----------------------------------------------------------------------------------


def test_downgrade() -> None:
    """Terms of a routed lease without their route, signed by nobody, are taken on neither way."""
    bench = Over().opened()
    asked = bench.asked()
    bench.hear(wire.LeaseProposed("lease_1", asked.job, asked.terms))
    answer = bench.answer()
    assert isinstance(answer, wire.LeaseDeclined) and answer.code == "MALFORMED"
    bench.hear(asked)
    key, terms = key_of("lease_1"), RoutedTerms.decode(asked.terms).terms
    held = bench.lease().signed
    body = terms.encode()
    stripped = SignedTerms(body, held.adapter_signature, key.sign(body))
    bench.hear(wire.LeaseSigned("lease_1", stripped, "", {}))
    assert bench.lease().state is LeaseState.OFFERED and bench.alarmed() == ["TERMS_REFUSED"]


def test_a_signature_that_is_not_the_leases_keys_starts_nothing() -> None:
    bench = Over().opened()
    bench.hear(bench.asked())
    bench.agreed(key=STRANGER)
    bench.leaf("lease_1", 0)
    assert bench.lease().state is LeaseState.OFFERED and bench.alarmed() == ["TERMS_REFUSED"]


def test_a_lease_that_its_router_never_signs_for_ends_without_a_start() -> None:
    bench = Over().opened()
    bench.hear(bench.asked())
    bench.agreed()
    bench.boot_ms += 10_001
    bench.do(Passed())
    end = bench.answer()
    assert isinstance(end, wire.LeaseProgress) and end.detail["reason"] == "CHANNEL_REFUSED"
    assert "its router did not sign" in str(end.detail["message"])
    bench.do(Passed())
    assert bench.state.leases == {} and bench.stages() == ["FINISHED"]


def test_same_owner() -> None:
    """Two leases of a router are two consumers': they share no device as one owner's."""
    bench = Over().opened()
    first, second = bench.asked("lease_1", gpu_job()), bench.asked("lease_2", gpu_job())
    assert (bench.declined(first), bench.declined(second)) == ("", "DEVICE_BUSY")
    consumers = {RoutedTerms.decode(one.terms).terms.consumer_vkh for one in (first, second)}
    assert len(consumers) == 2


def test_the_terms_that_are_signed_are_those_that_were_asked_for() -> None:
    bench = Over().opened()
    asked = bench.asked()
    bench.hear(asked)
    assert bench.signed_terms().body == asked.terms
    assert bench.hash_of("lease_1") == blake2b_256(asked.terms)
    bench.hear(bench.asked(ceiling=10_000))  # other terms under its name
    answer = bench.answer()
    assert isinstance(answer, wire.LeaseDeclined) and answer.code == "LEASE_CONFLICT"
