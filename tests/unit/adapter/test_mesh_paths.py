"""How a host chooses the path to a peer, and what of a probe it believes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from nacl.public import PrivateKey

from adapter.mesh import probe
from adapter.mesh.choice import DEAD, FAST_MS, REST_MS, Address, Paths
from marketplace.domain.work.mesh import Candidate, PathKind
from marketplace.domain.work.mesh_binding import LOST_MS, Bindings
from marketplace.domain.work.mesh_relay import RelayPlace
from marketplace.mesh_relay.table import Table

RELAY = Candidate(PathKind.RELAY, "203.0.113.5", 42_000)
SEEN = Candidate(PathKind.SEEN, "198.51.100.2", 5000)
PUBLIC = Candidate(PathKind.PUBLIC, "192.0.2.7", 41_000)
STEP_MS = 10


@dataclass
class Pair:
    """A peer whose paths answer after so many ms (None: not), in steps of 10 ms."""

    rtts: dict[Address, int | None]
    paths: Paths = field(default_factory=Paths)
    now: int = 0
    number: int = 0
    coming: list[tuple[int, Address, int]] = field(default_factory=list[tuple[int, Address, int]])
    log: list[tuple[int, PathKind]] = field(default_factory=list[tuple[int, PathKind]])

    def runs(self, ms: int) -> None:
        for _ in range(ms // STEP_MS):
            self.now += STEP_MS
            for at, address, number in [one for one in self.coming if one[0] <= self.now]:
                self.coming.remove((at, address, number))
                self.paths.known[address].answered(number, self.now)
            for path in self.paths.due(self.now):
                self.number += 1
                path.asked(self.number, self.now, self.paths.every(path, self.now))
                rtt = self.rtts.get(path.address)
                if rtt is not None:
                    self.coming.append((self.now + rtt, path.address, self.number))
            chosen = self.paths.choose(self.now)
            if chosen is not None and (not self.log or self.log[-1][1] is not chosen.kind):
                self.log.append((self.now, chosen.kind))

    def kinds(self) -> list[PathKind]:
        return [kind for _, kind in self.log]


def at(one: Candidate) -> Address:
    return one.endpoint, one.port


def pair(*candidates: Candidate, **rtts: int | None) -> Pair:
    named = {"relay": RELAY, "seen": SEEN, "public": PUBLIC}
    made = Pair({at(named[name]): rtt for name, rtt in rtts.items()})
    made.paths.offer(candidates, 0)
    return made


def test_it_begins_by_the_relay_and_goes_direct_after_three_answers() -> None:
    made = pair(RELAY, SEEN, relay=20, seen=20)
    made.runs(40)
    assert made.kinds() == [PathKind.RELAY]
    made.runs(960)
    assert made.kinds() == [PathKind.RELAY, PathKind.SEEN]


def test_what_never_answers_is_never_taken() -> None:
    made = pair(RELAY, SEEN, PUBLIC, relay=20)
    made.runs(30_000)
    assert made.kinds() == [PathKind.RELAY]


def test_a_cut_is_left_for_the_relay_in_time_and_rests() -> None:
    made = pair(RELAY, SEEN, relay=20, seen=20)
    made.runs(20_000)
    made.rtts[at(SEEN)], cut = None, made.now
    made.runs(2000)
    left, kind = made.log[-1]
    assert kind is PathKind.RELAY and left - cut <= (DEAD + 1) * FAST_MS + 50
    made.rtts[at(SEEN)] = 20
    made.runs(12_000)
    back, kind = made.log[-1]
    assert kind is PathKind.SEEN and back - left >= REST_MS


def test_one_lost_answer_changes_nothing() -> None:
    made = pair(RELAY, SEEN, relay=20, seen=20)
    made.runs(20_000)
    for _ in range(10):
        made.rtts[at(SEEN)] = None
        made.runs(3 * FAST_MS - STEP_MS)
        made.rtts[at(SEEN)] = 20
        made.runs(1500)
    assert made.kinds() == [PathKind.RELAY, PathKind.SEEN]


def test_a_slow_path_is_not_taken_for_a_dead_one() -> None:
    made = pair(SEEN, seen=900)
    made.runs(30_000)
    assert made.kinds() == [PathKind.SEEN]
    assert made.paths.known[at(SEEN)].lives(made.now)


def test_another_direct_path_has_to_be_better_for_long() -> None:
    made = pair(SEEN, PUBLIC, seen=100, public=98)
    made.runs(30_000)
    first = made.paths.current
    assert first is not None
    better = next(one for one in made.rtts if one != first.address)
    made.rtts[better] = 20
    made.runs(5_000)
    assert made.paths.current is first
    made.runs(30_000)
    assert made.paths.current is not None and made.paths.current.address == better


def test_without_a_relay_the_public_address_is_used_at_once() -> None:
    made = pair(SEEN, PUBLIC)
    made.runs(10)
    assert made.kinds() == [PathKind.PUBLIC]


def test_an_answer_that_nobody_asked_for_proves_no_path() -> None:
    made = pair(RELAY, SEEN, relay=20)
    path = made.paths.known[at(SEEN)]
    for number in range(50):
        assert not path.answered(number, 5)
    made.runs(2000)
    assert made.kinds() == [PathKind.RELAY]


def test_the_addresses_that_are_learned_are_few() -> None:
    made = pair(RELAY, relay=20)
    for port in range(100):
        made.paths.learn(("192.0.2.9", 1000 + port), port)
    assert len(made.paths.known) <= 5


def test_a_probe_is_its_peers_alone() -> None:
    one, two, other = (PrivateKey.generate() for _ in range(3))
    mine = probe.key_with(bytes(one), bytes(two.public_key))
    theirs = probe.key_with(bytes(two), bytes(one.public_key))
    said = probe.Probe(probe.Kind.PING, 1, 77)
    data = said.to_bytes(theirs)
    assert mine == theirs and probe.proven(data, mine) and probe.read(data) == said
    assert not probe.proven(data, probe.key_with(bytes(one), bytes(other.public_key)))
    for at_byte in range(len(data)):
        changed = data[:at_byte] + bytes([data[at_byte] ^ 1]) + data[at_byte + 1 :]
        assert not probe.proven(changed, mine)
    assert len(probe.Probe(probe.Kind.PONG, 0, 77).to_bytes(mine)) <= len(data)


# ---- what the relay sees -------------------------------------------------------------------------

PLACE = RelayPlace("203.0.113.5", 42_000, 4, b"s" * 32)


def exchange(made: Bindings, table: Table, seen: Callable[[Address], Address], now: int) -> None:
    """What both say to each other at that time, through a NAT that gives those addresses."""
    for _ in range(3):
        for to, data in list(made.due(now, now * 1_000_000)):
            for _, _, answer in table.take(to[1] - PLACE.first, seen(to), data, now):
                made.heard(to, answer, now)


def bindings(now: int = 1000) -> Bindings:
    made = Bindings(0)
    made.given(PLACE.give("gang_1", 0, 1, now))
    made.want([1])
    return made


def test_a_nat_with_one_address_for_all_is_told_from_one_with_many() -> None:
    cone, symmetric, table = bindings(), bindings(), Table(PLACE.secret, 4)
    exchange(cone, table, lambda _: ("198.51.100.2", 5000), 1000)
    assert cone.candidates(1000) == (RELAY, SEEN)
    exchange(symmetric, Table(PLACE.secret, 4), lambda to: ("198.51.100.2", to[1]), 1000)
    assert symmetric.candidates(1000) == (RELAY,)


def test_a_relay_that_falls_silent_is_no_candidate_any_more() -> None:
    made = bindings()
    exchange(made, Table(PLACE.secret, 4), lambda _: ("198.51.100.2", 5000), 1000)
    assert made.is_bound(1, 1000)
    exchange(made, Table(b"another", 4), lambda _: ("198.51.100.2", 5000), 1000 + LOST_MS)
    assert not made.is_bound(1, 1000 + LOST_MS)
    assert made.candidates(1000 + LOST_MS) == ()


def test_an_answer_of_before_is_no_answer_to_the_last_question() -> None:
    made, table = bindings(), Table(PLACE.secret, 4)
    told: list[tuple[Address, bytes]] = []
    for to, data in list(made.due(1000, 1)):
        told += [(to, one[2]) for one in table.take(to[1] - PLACE.first, at(SEEN), data, 1000)]
    list(made.due(2000, 2))
    for to, answer in told:
        made.heard(to, answer, 2000)
    assert made.candidates(2000) == ()
    assert all(cookie == bytes(16) for _, cookie in _cookies(made, 3000))


def _cookies(made: Bindings, now: int) -> list[tuple[Address, bytes]]:
    return [(to, data[-32:-16]) for to, data in made.due(now, now * 1_000_000)]
