"""What a cluster's members are ordered: the table's corners one by one, then any world at all, held
against what a cluster promises.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marketplace.client.clusters.core import (
    GRACE_MS,
    SETTLES_MS,
    Kept,
    Member,
    Order,
    Ordered,
    Rules,
    decide,
    restored,
)
from marketplace.client.clusters.stage import Stage
from marketplace.domain.work.cluster import Stall
from marketplace.domain.work.cluster_order import Verb
from marketplace.domain.work.mesh import Heard, MeshPeer, MeshPlace, MeshSight, public

NOW = 10_000_000
MEET, RUN, HOLD = Verb.MEET, Verb.RUN, Verb.HOLD


def rules(
    members: int = 3, least: int = 2, stall: Stall = Stall.PAUSE, mesh: bool = False
) -> Rules:
    return Rules(members, least, stall, mesh)


def one(at: int, said: Verb | None = None, started: bool = True, version: int = 1) -> Member:
    ordered = None if said is None else Ordered(version, said)
    return Member(at, f"l{at}", started, ordered=ordered)


def gone(at: int) -> Member:
    return Member(at)


def done(at: int) -> Member:
    return Member(at, done=True)


def verbs(orders: tuple[Order, ...]) -> dict[str, Verb]:
    return {order.lease: order.verb for order in orders}


def look(
    stage: Stage, *members: Member, least: int = 2, stall: Stall = Stall.PAUSE, at: int = NOW,
    since: int = 0,
) -> tuple[Kept, dict[str, Verb]]:  # fmt: skip
    asked = rules(len(members), least, stall)
    kept, orders = decide(Kept(stage, since), members, at, asked)
    return kept, verbs(orders)


def test_every_member_that_has_a_lease_is_ordered_from_the_first_look_on() -> None:
    kept, orders = look(Stage.ASSEMBLING, one(0, started=False), gone(1), one(2))
    assert orders == {"l0": MEET, "l2": MEET}
    assert (kept.stage, kept.there, kept.since_ms) == (Stage.ASSEMBLING, 1, 0)


def test_all_of_them_run_at_once() -> None:
    kept, orders = look(Stage.ASSEMBLING, one(0, MEET), one(1, MEET), one(2))
    assert set(orders.values()) == {RUN} and kept.stage is Stage.RUNNING


def test_with_fewer_it_waits_a_moment_for_the_others() -> None:
    some = (one(0, MEET), one(1, MEET), one(2, MEET, started=False))
    kept, orders = look(Stage.ASSEMBLING, *some)
    assert set(orders.values()) == {MEET} and kept.since_ms == NOW
    kept, orders = look(Stage.ASSEMBLING, *some, at=NOW + GRACE_MS - 1, since=NOW)
    assert set(orders.values()) == {MEET} and kept.stage is Stage.ASSEMBLING
    kept, orders = look(Stage.ASSEMBLING, *some, at=NOW + GRACE_MS, since=NOW)
    assert orders == {"l0": RUN, "l1": RUN, "l2": MEET}
    assert (kept.stage, kept.there) == (Stage.SHRUNK, 2)


def test_one_that_is_lost_meanwhile_begins_the_moment_anew() -> None:
    kept, _ = look(Stage.ASSEMBLING, one(0, MEET), gone(1), gone(2), at=NOW + 1, since=NOW)
    assert kept.since_ms == 0


def test_those_that_are_left_run_on_while_they_are_enough() -> None:
    kept, orders = look(Stage.RUNNING, one(0, RUN), gone(1), one(2, RUN))
    assert orders == {"l0": RUN, "l2": RUN} and (kept.stage, kept.there) == (Stage.SHRUNK, 2)


def test_too_few_are_held_all_of_them_and_what_is_new_meets() -> None:
    kept, orders = look(Stage.RUNNING, one(0, RUN), one(1, started=False), gone(2), least=3)
    assert orders == {"l0": HOLD, "l1": MEET} and (kept.stage, kept.there) == (Stage.STALLED, 1)


def test_too_few_run_on_where_the_job_says_so() -> None:
    kept, orders = look(Stage.RUNNING, one(0, RUN), gone(1), gone(2), least=3, stall=Stall.RUN)
    assert orders == {"l0": RUN} and (kept.stage, kept.there) == (Stage.SHRUNK, 1)
    kept, orders = look(Stage.SHRUNK, gone(0), gone(1), one(2), least=3, stall=Stall.RUN)
    assert orders == {"l2": RUN} and kept.stage is Stage.SHRUNK


def test_enough_again_run_again_without_waiting() -> None:
    kept, orders = look(Stage.STALLED, one(0, HOLD), one(1, MEET), gone(2))
    assert orders == {"l0": RUN, "l1": RUN} and kept.stage is Stage.SHRUNK
    kept, orders = look(Stage.STALLED, one(0, HOLD), one(1, HOLD), one(2, MEET), least=3)
    assert set(orders.values()) == {RUN} and kept.stage is Stage.RUNNING


def test_one_that_is_placed_and_not_up_is_nobody_yet() -> None:
    kept, orders = look(Stage.STALLED, one(0, HOLD), one(1, MEET, started=False), gone(2))
    assert orders == {"l0": HOLD, "l1": MEET} and kept.stage is Stage.STALLED


def test_what_has_completed_counts_as_there() -> None:
    kept, orders = look(Stage.RUNNING, one(0, RUN), done(1), done(2), least=3)
    assert orders == {"l0": RUN} and kept.stage is Stage.RUNNING
    kept, orders = look(Stage.RUNNING, gone(0), done(1), one(2, RUN), least=3)
    assert orders == {"l2": HOLD} and kept.stage is Stage.STALLED
    kept, orders = look(Stage.RUNNING, done(0), done(1), done(2))
    assert orders == {} and kept.stage is Stage.ENDED


@pytest.mark.parametrize("stage", Stage)
def test_one_that_is_over_is_ordered_nothing_more(stage: Stage) -> None:
    kept, orders = decide(Kept(stage), [one(0, RUN), one(1, HOLD)], NOW, rules(2), over=True)
    assert orders == () and kept.stage is Stage.ENDED


@pytest.mark.parametrize(
    ("said", "stage"),
    [
        ((None, None), Stage.ASSEMBLING),
        ((MEET, None), Stage.ASSEMBLING),
        ((RUN, MEET), Stage.SHRUNK),
        ((RUN, RUN), Stage.SHRUNK),
        ((RUN, HOLD), Stage.STALLED),
        ((HOLD, MEET), Stage.STALLED),
    ],
)
def test_another_process_takes_it_up_by_the_orders(
    said: tuple[Verb | None, Verb | None], stage: Stage
) -> None:
    assert restored([one(at, verb) for at, verb in enumerate(said)]).stage is stage


# ---- with a mesh ---------------------------------------------------------------------------------


def place(at: int, life: int = 0) -> MeshPlace:
    return MeshPlace(f"l{at}.{life}", bytes([at, life]) * 16, public("192.0.2.1", 4000 + at))


def heard(*members: int) -> tuple[Heard, ...]:
    return tuple(Heard(at, 1000, 1, 1) for at in sorted(members))


def meshed(
    at: int, verb: Verb, peers: set[int], hears: set[int], version: int = 1, sight_of: int = 1,
) -> Member:  # fmt: skip
    told = tuple(place(other).peer(other) for other in sorted(peers))
    sight = MeshSight(f"l{at}.0", sight_of, 1, heard(*hears))
    return Member(at, f"l{at}.0", True, False, Ordered(version, verb, told), place(at), sight)


def test_no_mesh_runs_before_each_hears_each() -> None:
    asked = rules(2, 2, mesh=True)
    deaf = (meshed(0, MEET, {1}, {1}), meshed(1, MEET, {0}, set()))
    kept, orders = decide(Kept(), deaf, NOW, asked)
    assert {order.verb for order in orders} == {MEET} and kept.stage is Stage.ASSEMBLING
    both = (meshed(0, MEET, {1}, {1}), meshed(1, MEET, {0}, {0}))
    kept, orders = decide(Kept(), both, NOW, asked)
    assert {order.verb for order in orders} == {RUN} and kept.stage is Stage.RUNNING


def test_one_that_nobody_hears_does_not_keep_the_others_from_beginning() -> None:
    asked = rules(4, 2, mesh=True)
    some = [
        meshed(0, MEET, {1, 2, 3}, {1, 3}), meshed(1, MEET, {0, 2, 3}, {0, 3}),
        meshed(2, MEET, {0, 1, 3}, {0, 1, 3}), meshed(3, MEET, {0, 1, 2}, {0, 1, 2}),
    ]  # fmt: skip
    kept, orders = decide(Kept(), some, NOW, asked)
    assert {order.verb for order in orders} == {MEET} and (kept.there, kept.since_ms) == (4, NOW)
    kept, orders = decide(kept, some, NOW + GRACE_MS - 1, asked)
    assert {order.verb for order in orders} == {MEET} and kept.stage is Stage.ASSEMBLING
    kept, orders = decide(kept, some, NOW + GRACE_MS, asked)
    assert [order.verb for order in orders] == [RUN, RUN, MEET, RUN]
    assert (kept.stage, kept.there) == (Stage.SHRUNK, 3)
    kept, _ = decide(Kept(), some, NOW, replace(asked, least=4))
    assert kept.since_ms == 0, "all of them were asked for"


def test_those_that_come_one_after_the_other_are_told_of_each_other_once() -> None:
    asked, kept, told, now = rules(8, 8, mesh=True), Kept(), 0, NOW
    members = [Member(at, f"l{at}.0", True) for at in range(8)]
    for at in range(8):
        now += 100 if at % 2 else 3000
        members[at] = replace(members[at], place=place(at))
        kept, orders = decide(kept, members, now, asked)
        for order in orders:
            one = next(i for i, m in enumerate(members) if m.lease == order.lease)
            last = members[one].ordered
            if last is None or last.peers != order.peers:
                told += 1
                version = 1 if last is None else last.version + 1
                members[one] = replace(members[one], ordered=Ordered(version, MEET, order.peers))
    assert all(one.ordered and len(one.ordered.peers) == 7 for one in members)
    assert told <= 2 * 8, "each is told once that it is to meet, and once of all others"


def test_before_it_begins_nobody_is_told_by_halves_and_who_is_gone_is_taken_back() -> None:
    asked = rules(4, 2, mesh=True)
    told = [meshed(0, MEET, {1}, {1}), meshed(1, MEET, {0}, {0})]
    new = [Member(2, "l2.0", True, place=place(2)), Member(3, "l3.0")]
    kept, orders = decide(Kept(placed=2, placed_ms=NOW - 1), [*told, *new], NOW, asked)
    assert [[p.member for p in order.peers] for order in orders] == [[1], [0]], "one may come yet"
    assert kept.placed_ms == NOW
    _, orders = decide(kept, [*told, *new], NOW + SETTLES_MS, asked)
    assert [[p.member for p in one.peers] for one in orders] == [[1, 2], [0, 2], [0, 1], [0, 1, 2]]
    new[1] = replace(new[1], place=place(3))
    _, orders = decide(kept, [*told, *new], NOW + 1, asked)
    assert all(len(order.peers) == 3 for order in orders), "nobody is waited for any more"
    again = replace(told[1], lease="l1.1", place=place(1, 1), ordered=None)
    _, orders = decide(kept, [told[0], again, *new[:1], Member(3)], NOW + 1, asked)
    assert orders[0].peers == (), "the key of one that is gone"


def test_what_was_heard_under_another_order_does_not_count() -> None:
    asked = rules(2, 2, mesh=True)
    old = (meshed(0, MEET, {1}, {1}, version=2, sight_of=1), meshed(1, MEET, {0}, {0}))
    assert decide(Kept(), old, NOW, asked)[0].stage is Stage.ASSEMBLING
    other = replace(
        old[0], ordered=Ordered(1, MEET, (MeshPeer(1, b"x" * 32, public("192.0.2.9", 1)),))
    )
    kept, orders = decide(Kept(), (other, old[1]), NOW, asked)
    assert kept.stage is Stage.ASSEMBLING
    assert orders[0].peers == (place(1).peer(1),), "its peers are told anew first"


def test_those_that_run_hear_of_a_new_peer_by_run_and_it_joins_once_all_are_heard() -> None:
    asked = rules(3, 2, mesh=True)
    running = [meshed(0, RUN, {1}, {1}), meshed(1, RUN, {0}, {0})]
    new = Member(2, "l2.0", True, place=place(2))
    kept, orders = decide(Kept(Stage.SHRUNK), (*running, new), NOW, asked)
    assert [order.verb for order in orders] == [RUN, RUN, MEET] and kept.stage is Stage.SHRUNK
    assert [[peer.member for peer in order.peers] for order in orders] == [[1, 2], [0, 2], [0, 1]]
    met = [
        meshed(0, RUN, {1, 2}, {1, 2}, 2, 2), meshed(1, RUN, {0, 2}, {0, 2}, 2, 2),
        meshed(2, MEET, {0, 1}, {0, 1}),
    ]  # fmt: skip
    kept, orders = decide(Kept(Stage.SHRUNK), met, NOW, asked)
    assert {order.verb for order in orders} == {RUN} and kept.stage is Stage.RUNNING
    met[1] = meshed(1, RUN, {0, 2}, {0}, 2, 2)
    kept, orders = decide(Kept(Stage.SHRUNK), met, NOW, asked)
    assert [order.verb for order in orders] == [RUN, RUN, MEET], "member 1 does not hear it"


def test_those_that_are_held_hear_of_a_new_peer_by_hold() -> None:
    asked = rules(2, 2, mesh=True)
    held, new = meshed(0, HOLD, set(), set()), Member(1, "l1.0", True, place=place(1))
    kept, orders = decide(Kept(Stage.STALLED), (held, new), NOW, asked)
    assert [(order.verb, len(order.peers)) for order in orders] == [(HOLD, 1), (MEET, 1)]
    met = (meshed(0, HOLD, {1}, {1}, 2, 2), meshed(1, MEET, {0}, {0}))
    kept, orders = decide(kept, met, NOW, asked)
    assert {order.verb for order in orders} == {RUN} and kept.stage is Stage.RUNNING


def test_one_that_is_lost_is_nobodys_peer_any_more() -> None:
    asked = rules(3, 2, mesh=True)
    left = [meshed(0, RUN, {1, 2}, {1, 2}), meshed(1, RUN, {0, 2}, {0, 2}), gone(2)]
    _, orders = decide(Kept(Stage.RUNNING), left, NOW, asked)
    assert [[peer.member for peer in order.peers] for order in orders] == [[1], [0]]


def test_guests_are_everybodys_peers_and_nobody_waits_for_one() -> None:
    asked, guest = rules(2, 2, mesh=True), MeshPeer(190, b"g" * 32, ())
    both = (meshed(0, RUN, {1}, {1}), meshed(1, RUN, {0}, {0}))
    kept, orders = decide(Kept(Stage.RUNNING), both, NOW, asked, guests=(guest,))
    assert [order.peers for order in orders] == [
        (place(1).peer(1), guest), (place(0).peer(0), guest),
    ]  # fmt: skip
    assert {order.verb for order in orders} == {RUN} and kept.stage is Stage.RUNNING
    told = [
        replace(one, ordered=Ordered(2, MEET, order.peers), sight=MeshSight("l", 2, 1, heard(at)))
        for one, order, at in zip(both, orders, (1, 0), strict=True)
    ]
    kept, orders = decide(Kept(), told, NOW, asked, guests=(guest,))
    assert {order.verb for order in orders} == {RUN}, "nobody hears the guest"
    _, orders = decide(kept, told, NOW, asked)
    assert [order.peers for order in orders] == [(place(1).peer(1),), (place(0).peer(0),)]


def test_what_has_no_mesh_has_no_guests() -> None:
    guest = MeshPeer(190, b"g" * 32, ())
    _, orders = decide(Kept(), [one(0, MEET), one(1, MEET)], NOW, rules(2), guests=(guest,))
    assert [order.peers for order in orders] == [(), ()]


# ---- any world -----------------------------------------------------------------------------------


@dataclass
class World:
    """Members that start, hear, are lost, replaced and complete as chance has it; orders reach them
    late, or not at all for a while, and only the newest that came counts.
    """

    rng: Random
    rules: Rules
    kept: Kept = field(default_factory=Kept)
    members: list[Member] = field(default_factory=list[Member])
    follows: dict[str, Ordered] = field(default_factory=dict[str, Ordered])
    lives: int = 0
    now: int = NOW

    def chance(self, now: int) -> None:
        for at, member in enumerate(self.members):
            self.members[at] = self._next(member)
        if self.rng.random() < 0.1:  # the process died: another one takes it up
            self.kept = restored(self.members)

    def _next(self, member: Member) -> Member:
        dice = self.rng.random()
        if member.done:
            return member
        if not member.lease:
            self.lives += 1
            return member if dice < 0.5 else Member(member.at, f"l{member.at}.{self.lives}")
        if dice < 0.08:
            return Member(member.at)
        if dice < 0.1 and member.begun:
            return Member(member.at, done=True)
        if dice < 0.5:
            member = replace(member, started=True)
        if self.rules.mesh and dice < 0.7 and member.place is None:
            made = MeshPlace(member.lease, self.rng.randbytes(32), public("192.0.2.1", 4000))
            member = replace(member, place=made)
        if member.ordered is not None and self.rng.random() < 0.7:
            self.follows[member.lease] = member.ordered
        return replace(member, sight=self._sight(member))

    def _sight(self, member: Member) -> MeshSight | None:
        known = self.follows.get(member.lease)
        if known is None or member.place is None or self.rng.random() < 0.2:
            return member.sight
        some = {peer.member for peer in known.peers if self.rng.random() < 0.9}
        return MeshSight(member.lease, known.version, 1, heard(*some))

    def look(self, now: int) -> tuple[Order, ...]:
        self.kept, orders = decide(self.kept, self.members, now, self.rules)
        by = {order.lease: order for order in orders}
        for at, member in enumerate(self.members):
            order = by.get(member.lease)
            if order is None:
                continue
            last = member.ordered
            said = Ordered(last.version if last else 0, order.verb, order.peers)
            if said != last:
                said = replace(said, version=said.version + 1)
                self.members[at] = replace(member, ordered=said)
        return orders


@settings(max_examples=300, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(2, 5), st.booleans(), st.sampled_from(Stall))
def test_what_a_cluster_promises_holds_in_any_world(
    rng: Random, count: int, mesh: bool, stall: Stall
) -> None:
    asked = Rules(count, rng.randint(1, count), stall, mesh)
    world = World(rng, asked, members=[Member(at) for at in range(count)])
    now = NOW
    for _ in range(60):
        now += rng.choice((200, 1000, 3000))
        world.chance(now)
        before, seen = world.kept, list(world.members)
        world.now = now
        orders = world.look(now)
        _check(world, before, seen, orders)


def _check(world: World, before: Kept, seen: list[Member], orders: tuple[Order, ...]) -> None:
    asked, stage = world.rules, world.kept.stage
    by = {order.lease: order for order in orders}
    if stage is Stage.ENDED:
        assert all(one.done for one in seen)
        return
    leases = {one.lease for one in seen if one.lease}
    waits = {one.lease for one in seen if one.lease and one.ordered is None}
    assert set(by) == leases or (
        waits and set(by) == leases - waits and _may_settle(world, before, seen)
    )
    runs = [one for one in seen if one.lease in by and by[one.lease].verb is RUN]
    for member in seen:
        if member.lease in by:
            _check_order(world, before, member, by[member.lease], seen)
    there = len(runs) + sum(one.done for one in seen)
    if runs and asked.stall is Stall.PAUSE:
        assert there >= asked.least, "fewer than least run"
    if before.stage in (Stage.ASSEMBLING, Stage.STALLED) and runs:
        assert there >= asked.least and (stage is Stage.RUNNING) == (there == asked.members)
        for a in runs if asked.mesh else ():
            for b in runs:
                hears = a is b or (a.sight is not None and b.at in a.sight.members)
                assert hears, f"{a} does not hear {b}"
                assert a is b or (a.sight and a.ordered and a.sight.version == a.ordered.version)
    assert (stage is Stage.RUNNING) <= (there == asked.members)
    assert stage is not Stage.STALLED or not runs
    assert stage is not Stage.ASSEMBLING or all(order.verb is MEET for order in orders)


def _may_settle(world: World, before: Kept, seen: list[Member]) -> bool:
    placed = sum(one.place is not None for one in seen)
    more = placed + sum(one.done for one in seen) < world.rules.members
    lately = world.now - world.kept.placed_ms < SETTLES_MS
    return before.stage is Stage.ASSEMBLING and world.rules.mesh and more and lately


def _check_order(
    world: World, before: Kept, member: Member, order: Order, seen: list[Member]
) -> None:
    asked = world.rules
    assert order.verb is not RUN or member.started or member.begun, "it runs before it is up"
    assert not (member.begun and order.verb is MEET), "it would wait unbilled a second time"
    assert member.begun or order.verb is not HOLD, "what never ran is not frozen"
    there = [other for other in seen if other.lease and other.place and other is not member]
    placed = [other.place.peer(other.at) for other in there if other.place] if asked.mesh else []
    if list(order.peers) == placed:
        return
    keys = {(peer.member, peer.key) for peer in placed}
    assert {(peer.member, peer.key) for peer in order.peers} <= keys, "one that is gone is a peer"
    assert member.ordered and set(order.peers) <= set(member.ordered.peers), "nobody new by halves"
    few = sum(one.place is not None or one.done for one in seen) < asked.least
    assert before.stage is Stage.ASSEMBLING and world.kept.stage is not Stage.RUNNING
    assert few or world.now - world.kept.placed_ms < SETTLES_MS, "the others are told at last"
