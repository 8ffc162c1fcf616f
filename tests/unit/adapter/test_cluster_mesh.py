"""A member's mesh at its adapter: whom it meets, and what is signed of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from adapter.core.decide import recover, wake
from adapter.core.events import LinkDown, LinkUp, Meet, MeshHeard, MeshUp, Outcome, Send
from adapter.core.member import Member
from adapter.core.state import Own
from adapter.journal.journal import Journal
from marketplace.domain.protocol import wire
from marketplace.domain.work.cluster_order import Verb
from marketplace.domain.work.lease import LeaseState
from marketplace.domain.work.mesh import Heard, MeshPeer, MeshPlace, MeshSight, public
from tests.unit.support.adapter import ADAPTER, Bench, member_job, offer

KEY = b"\x0a" * 32
ONE, TWO = (
    MeshPeer(0, b"\x0b" * 32, public("203.0.113.7", 51820)),
    MeshPeer(2, b"\x0c" * 32, public("10.0.0.2", 9)),
)
UP = MeshUp("lease_1", KEY, public("203.0.113.9", 41000))


def signed() -> Bench:
    """Member 1 of a cluster with a mesh, its workload about to start."""
    at = Bench(Own(offer(mesh=True), ADAPTER))
    at.do(LinkUp(orders=True))
    at.propose(member_job(1, mesh=True))
    at.sign()
    at.sight()
    return at


def up() -> Bench:
    """Its workload runs, and its mesh is there."""
    at = signed()
    at.do(UP)
    at.start()
    return at


def meetings(outcome: Outcome) -> list[Meet]:
    return [effect for effect in outcome.effects if isinstance(effect, Meet)]


def said(outcome: Outcome) -> list[wire.Message]:
    kinds = (wire.MeshPlaced, wire.MeshSeen)
    sent = [effect.message for effect in outcome.effects if isinstance(effect, Send)]
    return [message for message in sent if isinstance(message, kinds)]


def sights(at: Bench) -> list[MeshSight]:
    return [m.sight.sight for m in at.sent() if isinstance(m, wire.MeshSeen)]


def test_where_a_mesh_is_reached_is_signed_by_the_adapter_of_the_terms() -> None:
    at = signed()
    outcome = at.do(UP)
    (told,) = said(outcome)
    assert isinstance(told, wire.MeshPlaced) and outcome.durable
    told.place.verify(at.lease().terms.adapter_vk)
    place = told.place.place
    assert place == MeshPlace("lease_1", KEY, public("203.0.113.9", 41000))
    assert not said(at.do(UP))  # found again after a restart


@pytest.mark.parametrize("verb", list(Verb))
def test_each_order_and_the_start_say_whom_it_meets(verb: Verb) -> None:
    at = signed()
    assert meetings(at.do(UP)) == [Meet("lease_1", 0)]
    assert meetings(at.order(verb, ONE)) == [Meet("lease_1", 1, (ONE,))]
    assert meetings(at.start()) == [Meet("lease_1", 1, (ONE,))]
    assert meetings(at.order(verb, ONE, TWO)) == [Meet("lease_1", 2, (ONE, TWO))]
    assert meetings(at.order(verb)) == [Meet("lease_1", 3)]


def test_a_member_never_meets_itself() -> None:
    """By its number, or by its key under another's."""
    at = up()
    own, under_another = replace(TWO, member=1), replace(TWO, key=KEY)
    assert meetings(at.order(Verb.RUN, ONE, own)) == [Meet("lease_1", 1, (ONE,))]
    assert meetings(at.order(Verb.RUN, ONE, under_another)) == [Meet("lease_1", 2, (ONE,))]


def test_nobody_is_met_before_the_own_key_is_known() -> None:
    """Else it could be among them. What was ordered before is taken up then."""
    at = signed()
    assert meetings(at.order(Verb.MEET, ONE, replace(TWO, key=KEY))) == []
    assert meetings(at.do(UP)) == [Meet("lease_1", 1, (ONE,))]


def test_a_member_without_a_mesh_meets_nobody() -> None:
    at = Bench().running(member_job(1))
    assert meetings(at.order(Verb.RUN, ONE)) == []
    assert not at.do(UP).effects and not at.do(MeshHeard("lease_1", 1, ())).effects
    assert at.lease().member.place is None


def test_a_sight_is_of_the_newest_order_and_of_those_that_it_names() -> None:
    """A member that was replaced is not heard under the new one's number."""
    at = up()
    at.order(Verb.MEET, ONE, TWO)
    two, one = Heard(2, 800, 10, 20), Heard(0, 500, 1, 2)
    at.do(MeshHeard("lease_1", 1, (two, one, Heard(5, 1, 1, 1), Heard(1, 1, 1, 1))))
    (seen,) = sights(at)
    assert (seen.lease, seen.version, seen.number, seen.heard) == ("lease_1", 1, 1, (one, two))
    at.lease().member.sight.verify(at.lease().terms.adapter_vk)  # pyright: ignore[reportOptionalMemberAccess]
    at.order(Verb.MEET, replace(ONE, key=b"\x0d" * 32), TWO)
    outcome = at.do(MeshHeard("lease_1", 1, (one, two)))
    assert not outcome.effects and at.lease().member.number == 1
    at.do(MeshHeard("lease_1", 2, (two,)))
    assert (sights(at)[-1].number, sights(at)[-1].members) == (2, {2})


def test_the_number_of_a_sight_is_on_disk_before_it_is_said() -> None:
    at = up()
    outcome = at.do(MeshHeard("lease_1", 0, ()))
    assert outcome.durable and outcome.state.leases["lease_1"].member.number == 1


def test_both_are_said_again_after_each_welcome() -> None:
    """And what is heard while the market is away only then."""
    at = up()
    at.order(Verb.RUN, ONE)
    at.do(LinkDown())
    assert not said(at.do(MeshHeard("lease_1", 1, (Heard(0, 1, 1, 1),))))
    member = at.lease().member
    assert member.place is not None and member.sight is not None
    assert said(at.do(LinkUp(orders=True))) == [
        wire.MeshPlaced("lease_1", member.place), wire.MeshSeen("lease_1", member.sight),
    ]  # fmt: skip
    at.do(LinkDown())
    assert said(at.do(LinkUp(orders=False))) == []


def test_what_is_over_meets_nobody_and_says_nothing() -> None:
    at = up()
    at.exit()
    assert not said(at.do(UP)) and not said(at.do(MeshHeard("lease_1", 0, ())))
    assert recover(at.state) and not [x for x in recover(at.state) if isinstance(x, Meet)]
    assert not said(at.do(LinkUp(orders=True)))


def test_a_restarted_adapter_obeys_the_order_that_it_held(tmp_path: Path) -> None:
    """It meets the same ones, takes no older order, and the numbers of its sights go on."""
    at = up()
    at.order(Verb.RUN, ONE, version=4)
    at.do(MeshHeard("lease_1", 4, (Heard(0, 1, 1, 1),)))
    at.order(Verb.HOLD, ONE, TWO, version=7)
    journal = Journal(tmp_path / "journal.db")
    for outcome in at.outcomes:
        if outcome.durable:
            journal.write(outcome)
    journal.close()
    journal = Journal(tmp_path / "journal.db")
    held = at.lease().member
    at.state = wake(journal.load(), at.now)
    journal.close()
    lease = at.lease()
    assert lease.member == held and lease.state is LeaseState.PAUSED
    assert [x for x in recover(at.state) if isinstance(x, Meet)] == [Meet("lease_1", 7, (ONE, TWO))]
    at.order(Verb.RUN, ONE, version=5)
    assert at.lease().member.version == 7
    at.do(LinkUp(orders=True))
    at.do(MeshHeard("lease_1", 7, ()))
    assert sights(at)[-1].number == 2


def test_a_lease_that_is_no_member_lies_in_the_journal_as_ever() -> None:
    assert Bench().running().lease().member == Member()
