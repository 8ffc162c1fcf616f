"""The relay of meshes: it carries packets between two members of one group that the market gave
leave to, and answers nobody else.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketplace.domain.errors import Malformed
from marketplace.domain.work.mesh_relay import (
    COOKIE,
    HOLDS_MS,
    Asked,
    Bound,
    RelayPass,
    RelayPlace,
    Ticket,
    group_of,
)
from marketplace.mesh_relay.table import BOUND_MS, Address, Table

SECRET = b"s" * 32
PLACE = RelayPlace("203.0.113.5", 42_000, 4, SECRET)
NOW = 1_000_000
HERE: Address = ("198.51.100.1", 4000)
THERE: Address = ("198.51.100.2", 5000)
ELSE: Address = ("192.0.2.66", 666)
DATA = b"\x04\0\0\0" + b"ciphertext" * 9


def leave(member: int, gang: str = "gang_1", since_ms: int = 1) -> RelayPass:
    return PLACE.give(gang, member, since_ms, NOW)


def bound(table: Table, given: RelayPass, port: int, source: Address, counter: int = 1) -> bool:
    """Both steps, of an honest host; whether it is bound."""
    answer = asks(table, given, port, source, counter)
    if answer is None:
        return False
    again = asks(table, given, port, source, counter + 1, answer.cookie)
    return again is not None and again.bound


def asks(
    table: Table, given: RelayPass, port: int, source: Address, counter: int,
    cookie: bytes = bytes(COOKIE), now: int = NOW,
) -> Bound | None:  # fmt: skip
    asked = Asked(given.ticket, counter, cookie).to_bytes(given.key)
    told = list(table.take(port, source, asked, now))
    if not told:
        return None
    ((out, to, data),) = told
    assert (out, to) == (port, source), "an answer goes where its question came from"
    assert len(data) < len(asked)
    return Bound.from_bytes(data, given.key)


def pair(table: Table, gangs: Sequence[str] = ("gang_1", "gang_1")) -> None:
    assert bound(table, leave(0, gangs[0]), 1, HERE)
    assert bound(table, leave(1, gangs[1]), 0, THERE)


def carried(table: Table, port: int, source: Address, data: bytes = DATA, now: int = NOW):
    return list(table.take(port, source, data, now))


def test_two_that_are_bound_reach_each_other_as_by_the_others_port() -> None:
    table = Table(SECRET, 4)
    pair(table)
    assert carried(table, 1, HERE) == [(0, THERE, DATA)]
    assert carried(table, 0, THERE) == [(1, HERE, DATA)]


def test_whom_no_ticket_was_given_gets_no_answer_whatever_it_sends() -> None:
    table = Table(SECRET, 4)
    pair(table)
    forged = Ticket(group_of("gang_1"), 0, 9, NOW + 1000)
    own = RelayPass(PLACE.endpoint, PLACE.first, 4, forged.to_bytes(), b"k" * 32)
    assert asks(table, own, 1, ELSE, 9) is None
    good = Asked(leave(0).ticket, 9).to_bytes(leave(0).key)
    for data in (
        b"",
        good[:-1],
        good + b"x",
        good[:20] + b"\x99" + good[21:],
        DATA,
        b"\x05" + DATA,
    ):
        assert carried(table, 1, ELSE, data) == []
    assert carried(table, 1, HERE) == [(0, THERE, DATA)], "nobody was put in another's place"


def test_a_question_that_was_heard_before_is_none_from_anywhere() -> None:
    table = Table(SECRET, 4)
    pair(table)
    for counter in (1, 2):
        assert asks(table, leave(0), 1, HERE, counter) is None
        assert asks(table, leave(0), 1, ELSE, counter) is None


def test_who_cannot_hear_at_an_address_is_not_bound_from_there() -> None:
    """A holder of a ticket who writes another's address into its packets: no traffic goes there."""
    table = Table(SECRET, 4)
    pair(table)
    answer = asks(table, leave(0), 1, ELSE, 8)
    assert answer is not None and not answer.bound
    victim: Address = ("192.0.2.7", 53)
    again = asks(table, leave(0), 1, victim, 9, answer.cookie)
    assert again is not None and not again.bound, "the cookie is of another address"
    assert carried(table, 0, THERE) == [(1, HERE, DATA)]


def test_members_of_two_groups_never_reach_each_other() -> None:
    table = Table(SECRET, 4)
    pair(table, ("gang_1", "gang_2"))
    assert carried(table, 1, HERE) == []
    assert carried(table, 0, THERE) == []
    assert bound(table, leave(1), 0, ELSE)
    assert carried(table, 1, HERE) == [(0, ELSE, DATA)], "its own is there"


def test_a_member_reaches_nothing_by_a_port_that_it_is_not_bound_at() -> None:
    table = Table(SECRET, 4)
    pair(table)
    assert carried(table, 2, HERE) == []
    assert bound(table, leave(0), 0, HERE), "its own: only to see how it is seen"
    assert carried(table, 0, HERE) == []


def test_a_lease_that_was_replaced_is_bound_no_more() -> None:
    table = Table(SECRET, 4)
    pair(table)
    assert bound(table, leave(0, since_ms=2), 1, ELSE)
    assert carried(table, 1, HERE) == []
    assert carried(table, 0, THERE) == [(1, ELSE, DATA)]
    assert asks(table, leave(0), 1, HERE, 50) is None, "an older lease's leave"


def test_leave_ends_with_its_time_and_a_binding_that_nobody_renews() -> None:
    table = Table(SECRET, 4)
    pair(table)
    assert carried(table, 1, HERE, now=NOW + BOUND_MS - 1) != []
    assert carried(table, 1, HERE, now=NOW + BOUND_MS) == []
    assert asks(table, leave(0), 1, HERE, 9, now=NOW + HOLDS_MS - 1) is not None
    assert asks(table, leave(0), 1, HERE, 10, now=NOW + HOLDS_MS) is None
    table.sweep(NOW + HOLDS_MS)
    assert len(table) == 0


def test_a_member_sends_no_more_than_its_share_of_a_second() -> None:
    table = Table(SECRET, 4, rate=3 * len(DATA))
    pair(table)
    assert [len(carried(table, 1, HERE)) for _ in range(5)] == [1, 1, 1, 0, 0]
    assert len(carried(table, 0, THERE)) == 1, "the other has its own"
    assert len(carried(table, 1, HERE, now=NOW + 1000)) == 1


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1", b"\x05\0\0\0xx", b"\x04\0\0\0" + bytes(4000)])
def test_what_is_no_packet_of_a_mesh_is_not_carried(data: bytes) -> None:
    table = Table(SECRET, 4)
    pair(table)
    assert carried(table, 1, HERE, data) == []


@given(st.binary(max_size=200), st.integers(0, 3))
def test_no_bytes_of_a_stranger_are_answered_or_carried(data: bytes, port: int) -> None:
    table = Table(SECRET, 4)
    pair(table)
    for begins in (b"", b"TLYB", b"TLYP", b"\x01\0\0\0"):
        assert carried(table, port, ELSE, begins + data) == []


@pytest.mark.parametrize(
    "text", ["", "203.0.113.5", "host:42000-42063", "203.0.113.5:80-90", "203.0.113.5:42000-42064"]
)
def test_a_relay_is_an_address_and_ports_for_members(text: str) -> None:
    with pytest.raises(Malformed):
        RelayPlace.read(text, SECRET)
    assert RelayPlace.read("203.0.113.5:42000-42063", SECRET).count == 64


# ---- guests --------------------------------------------------------------------------------------


def guest(number: int = 0, members: int = 2) -> RelayPass:
    given = PLACE.give_guest("gang_1", number, members, 1, NOW)
    assert given is not None
    return given[0]


def test_a_guest_and_a_member_reach_each_other_and_two_guests_do_not() -> None:
    table = Table(SECRET, 4)
    pair(table)
    assert bound(table, guest(), 0, ELSE) and bound(table, leave(0), 3, HERE)
    assert carried(table, 0, ELSE) == [(3, HERE, DATA)]
    assert carried(table, 3, HERE) == [(0, ELSE, DATA)]
    second: Address = ("192.0.2.77", 777)
    assert bound(table, guest(1), 3, second) and bound(table, guest(), 2, ELSE)
    assert carried(table, 3, second) == carried(table, 2, ELSE) == []


def test_no_guest_has_a_members_port_and_none_makes_itself_a_member() -> None:
    assert [PLACE.give_guest("gang_1", at, 2, 1, NOW) is None for at in range(4)] == [
        False, False, True, True,
    ]  # fmt: skip
    ticket = Ticket.from_bytes(guest().ticket)
    assert (ticket.guest, ticket.member) == (True, 3) and ticket.to_bytes() == guest().ticket
    forged = bytearray(guest().ticket)
    forged[16] &= 0x7F
    own = RelayPass(PLACE.endpoint, PLACE.first, 4, bytes(forged), guest().key)
    assert not Ticket.from_bytes(bytes(forged)).guest
    assert asks(Table(SECRET, 4), own, 0, ELSE, 1) is None
