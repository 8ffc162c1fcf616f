"""What a gang's page says of its members: how they stand, who hears whom, and what they print."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marketplace.console.gangs import (
    LOG_SHOWN,
    SIZE,
    Picture,
    Row,
    log_of,
    pairs_of,
    picture_of,
    rows_of,
    standing,
)
from marketplace.domain.keys import Signer
from marketplace.domain.work.cluster import Cluster
from marketplace.domain.work.cluster_order import ClusterOrder, SignedOrder, Verb
from marketplace.domain.work.mesh import Heard, MeshPeer, MeshPlace, MeshSight, SignedMesh, public
from marketplace.domain.work.mesh_net import FIRST_GUEST
from marketplace.domain.work.parts import MOST_MEMBERS
from marketplace.market.base.records import LogRecord

KEY = Signer(b"\x01" * 32)
MEET, RUN, HOLD = Verb.MEET, Verb.RUN, Verb.HOLD
MESH, APART = Cluster(2, mesh=True), Cluster(2, mesh=False)


def hexed(said: Any) -> dict[str, str]:
    return {"body": said.body.hex(), "signature": said.signature.hex()}


def member(
    at: int, verb: Verb | None = None, hears: tuple[int, ...] | None = None, **more: Any
) -> dict[str, Any]:
    """As `clusters.view` shows one that is up."""
    order = ClusterOrder(f"lease_{at}", 3, verb) if verb is not None else None
    heard = tuple(Heard(one, 400, 1_000, 2_000) for one in hears or ())
    sight = MeshSight(f"lease_{at}", 3, 1, heard)
    return {
        "member": at, "job": f"job_{at}", "lease": f"lease_{at}", "state": "ACTIVE", "stage": "",
        "needs": "", "started": True, "lost": False, "place": None,
        "order": hexed(SignedOrder.sign(KEY, order)) if order is not None else None,
        "sight": hexed(SignedMesh.sign(KEY, sight)) if hears is not None else None, **more,
    }  # fmt: skip


def seen(*members: dict[str, Any], over: bool = False) -> dict[str, Any]:
    return {"members": list(members), "over": over}


def rows(*members: dict[str, Any]) -> list[Row]:
    return rows_of([{"id": one["job"]} for one in members], seen(*members))


GONE: dict[str, Any] = {"lease": None, "state": None, "started": False, "lost": True}
DONE: dict[str, Any] = {"state": "ENDED", "started": False}
PLACED = hexed(SignedMesh.sign(KEY, MeshPlace("lease_0", bytes(32), public("192.0.2.1", 7))))


@pytest.mark.parametrize(
    ("cluster", "members", "said"),
    [
        (APART, [member(0), member(1, started=False), member(2, MEET)], "assembling 2 of 3"),
        (MESH, [member(0, MEET, place=PLACED), member(1, MEET)], "assembling 1 of 2"),
        (MESH, [member(0, RUN), member(1, RUN)], "running"),
        (APART, [member(0, RUN), member(1, RUN), member(2, **GONE)], "running with 2 of 3"),
        (APART, [member(0, RUN), member(1, RUN), member(2, MEET)], "running with 2 of 3"),
        (APART, [member(0, RUN), member(1, RUN), member(2, RUN, **DONE)], "running"),
        (
            APART,
            [member(0, RUN), member(1, RUN, **DONE, needs="session_vk")],
            "running with 1 of 2",
        ),
        (APART, [member(0, HOLD), member(1, **GONE)], "held: 1 of 2 is missing, unbilled"),
        (
            MESH,
            [member(0, HOLD), member(1, RUN)],
            "held: not all of them hear each other, unbilled",
        ),
        (APART, [member(0, RUN, **DONE), member(1, RUN, **DONE)], "ended"),
    ],
)
def test_a_stage_is_said_as_who_pays_for_it_says_it(
    cluster: Cluster, members: list[dict[str, Any]], said: str
) -> None:
    assert standing(cluster, seen(*members)).words == said
    assert standing(cluster, seen(*members, over=True)).words == "ended"


def test_an_order_is_said_in_words_while_somebody_follows_it() -> None:
    found = rows(
        member(0, MEET), member(1, RUN), member(2, HOLD), member(3), member(4, RUN, **DONE)
    )
    assert [one.does for one in found] == [
        "waits, unbilled", "works, billed", "is frozen, unbilled", "", "",
    ]  # fmt: skip


def test_a_gang_that_is_no_cluster_has_members_and_no_orders() -> None:
    found = rows_of([{"id": "job_a"}, {"id": "job_b"}], None)
    assert [(one.name, one.order, one.hears) for one in found] == [
        ("member-0", None, ()), ("member-1", None, ()),
    ]  # fmt: skip


def test_a_line_joins_two_that_hear_each_other_and_is_dashed_one_way() -> None:
    found = rows(member(0, RUN, (1, 2)), member(1, RUN, (0,)), member(2, RUN, ()))
    drawn = picture_of(found)
    assert drawn.both.count("M") == drawn.one_way.count("M") == 1
    assert drawn.told == "1 of 3 pairs hear each other, 1 only one way"
    assert [(one.by, one.heard.member, one.both) for one in pairs_of(found)] == [
        (0, 1, True), (0, 2, False), (1, 0, True),
    ]  # fmt: skip
    assert [look for *_, look in drawn.nodes] == ["run"] * 3


def test_a_sight_of_itself_of_nobody_and_of_who_is_gone_draws_nothing() -> None:
    """Its adapter signs what it likes, and what a lost one saw is not so any more."""
    found = rows(
        member(0, RUN, (0, 2, 63)), member(1, RUN, (0,), **DONE), member(2, None, (0,), **GONE)
    )
    assert pairs_of(found) == []
    drawn = picture_of(found)
    assert (drawn.both, drawn.one_way) == ("", "")
    assert [look for *_, look in drawn.nodes] == ["run", "away", "away"]


def test_a_machine_of_the_consumers_own_is_shown_as_a_guest_and_draws_no_line() -> None:
    """Only one that the order names: an adapter signs what it likes."""
    guest = MeshPeer(FIRST_GUEST, b"g" * 32, ())
    told = hexed(SignedOrder.sign(KEY, ClusterOrder("lease_0", 1, RUN, (guest,))))
    found = rows(member(0, RUN, (1, FIRST_GUEST), order=told), member(1, RUN, (0, FIRST_GUEST)))
    assert [(one.by, one.name, one.both) for one in pairs_of(found)] == [
        (0, "member-1", True), (0, "guest-0", True), (1, "member-0", True),
    ]  # fmt: skip
    drawn = picture_of(found)
    assert (drawn.both.count("M"), drawn.one_way) == (1, "")


def _apart(drawn: Picture) -> bool:
    spots = [(x, y) for _, x, y, _ in drawn.nodes]
    least = min(
        ((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2 for a in spots for b in spots if a != b),
        default=10**6,
    )
    return len(set(spots)) == len(spots) and least > (2 * drawn.radius) ** 2


@pytest.mark.parametrize("count", [1, 2, 3, 16, MOST_MEMBERS])
def test_members_stand_apart_inside_their_picture(count: int) -> None:
    drawn = picture_of(rows(*(member(at, RUN) for at in range(count))))
    r = drawn.radius
    assert len(drawn.nodes) == count and _apart(drawn)
    assert all(r < x < SIZE - r and r < y < SIZE - r for _, x, y, _ in drawn.nodes)


# ---- one log -------------------------------------------------------------------------------------


def pieces(*said: tuple[int, bytes], offset: int = 0) -> list[LogRecord]:
    made: list[LogRecord] = []
    for ms, data in said:
        made.append(LogRecord("lease_1", "job_1", offset, "out", data, ms))
        offset += len(data)
    return made


def test_lines_stand_in_the_order_in_which_they_came_in() -> None:
    first = pieces((1, b"a\nb"), (5, b"c\nd\n"))
    assert log_of([first, pieces((2, b"x\n"), (3, b"y"))]) == (
        "[member-0] a\n[member-0] bc\n[member-1] x\n[member-1] y\n[member-0] d\n"
    )


def test_a_log_that_is_cut_begins_with_a_line() -> None:
    assert log_of([pieces((1, b"lf of one\nnext\n"), offset=9)]) == "[member-0] next\n"
    assert log_of([pieces((1, b"no end"), offset=9)]) == "[member-0] no end\n"
    long = pieces((1, b"begins\n" + b"y" * LOG_SHOWN + b"\n"))
    assert log_of([long]).startswith("[member-0] yyy")
    many = log_of([pieces((1, b"0123456789\n" * 20_000)), pieces((1, b"x\n"))])
    assert len(many) < 2 * LOG_SHOWN and set(many.splitlines()) == {
        "[member-0] 0123456789", "[member-1] x",
    }  # fmt: skip


ENDS = ("\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from(("[member-1] paid", "é", "\udc80", "x", *ENDS)), max_size=8),
        min_size=1,
        max_size=3,
    )
)
def test_no_member_prints_a_line_with_anothers_name(printed: list[list[str]]) -> None:
    said = [
        pieces(*((at, one.encode("utf-8", "surrogateescape")) for at, one in enumerate(parts)))
        for parts in printed
    ]
    lines = re.split("\r\n|[\n\r\x0b\x0c\x1c\x85\u2028\u2029]", log_of(said))
    assert lines.pop() == ""
    for at, parts in enumerate(printed):
        mine = [line for line in lines if line.startswith(f"[member-{at}] ")]
        text = b"".join(one.encode("utf-8", "surrogateescape") for one in parts)
        whole = text.decode(errors="replace")
        assert [line.removeprefix(f"[member-{at}] ") for line in mine] == whole.splitlines()
    assert len(lines) == sum(
        len(b"".join(p.data for p in one).decode(errors="replace").splitlines()) for one in said
    )
