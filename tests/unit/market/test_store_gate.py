"""Who reaches which store of the market's, request by request, before the server behind is asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from threading import Thread
from time import sleep
from typing import Any, Literal

import pytest

from marketplace.cluster_store import gate as gate_module
from marketplace.cluster_store.gate import (
    HEARD_S,
    Environ,
    Gate,
    Held,
    Living,
    StartResponse,
)
from marketplace.cluster_store.places import MOST, Leaving, Places
from marketplace.domain.work.cluster_store import Leave, id_of

SECRET = b"s" * 32
MINE, THEIRS = id_of("acct_1", "run"), id_of("acct_2", "run")
GOOD = Leave("member", MINE, "lease_1").token(SECRET)


def until(s: int, kind: Literal["owner", "market"] = "owner", store: str = MINE) -> str:
    """Leave for an hour or so."""
    return f"Bearer {Leave(kind, store, until_s=s).token(SECRET)}"


class Door:
    """A gate, what its clock says, what came through it, and which stores are there."""

    def __init__(self, answers: str = "200 OK") -> None:
        self.now, self.came, self.answers = 100.0, list[Environ](), answers
        self.there = {MINE, THEIRS}
        self.files = set[str]()
        self.silent = False
        self.slow, self.open = False, list[Callable[[], None]]()
        self.living = Living(lambda: self.now)
        self.living.told({"lease_1": MINE, "lease_2": THEIRS})
        self.gate = Gate(self._behind, self, SECRET, self.living, lambda: self.now)

    def has(self, store: str) -> bool:
        return store in self.there

    def holds(self, store: str) -> Held | None:
        return Held(5, 2, 90) if self.has(store) else None

    def remove(self, store: str) -> bool:
        there = self.has(store)
        self.there.discard(store)
        return there

    def is_file(self, path: str) -> bool:
        return path in self.files

    def _behind(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        self.came.append(environ)
        if environ["PATH_INFO"].endswith("/fault"):
            raise RuntimeError
        if environ["PATH_INFO"].endswith("/fault later"):
            return self._broken()
        if self.silent:
            return []
        start_response(self.answers, [])
        return [b""]

    def _broken(self) -> Iterator[bytes]:
        raise RuntimeError
        yield

    def ask(
        self, method: str, path: str, said: str = f"Bearer {GOOD}", **more: str
    ) -> tuple[int, str]:
        """Status and code."""
        status: list[str] = []

        def start(line: str, _headers: Any, *_: Any) -> None:
            status.append(line)

        asked = {"REQUEST_METHOD": method, "PATH_INFO": path, "HTTP_AUTHORIZATION": said, **more}
        answer = self.gate(asked, start)
        if self.slow and isinstance(answer, Leaving):  # it reads nothing of it yet
            self.open.append(answer.close)
            return int(status[0].split()[0]) if status else 0, ""
        self.body = b"".join(answer)
        told: dict[str, Any] = json.loads(self.body) if self.body else {}
        return int(status[0].split()[0]), told.get("code", "")


def test_its_lease_reaches_its_store() -> None:
    door = Door()
    for method in ("GET", "HEAD", "PUT", "MKCOL", "DELETE", "OPTIONS"):
        assert door.ask(method, f"/{MINE}/a/b.pt") == (200, "")
    assert door.ask("PROPFIND", f"/{MINE}/", HTTP_DEPTH="1") == (200, "")
    assert {one["tally.store"] for one in door.came} == {MINE}


@pytest.mark.parametrize(
    ("said", "status", "code"),
    [
        ("", 401, "STORE_TOKEN"),
        ("Bearer ", 401, "STORE_TOKEN"),
        (f"Basic {GOOD}", 401, "STORE_TOKEN"),
        (f"Bearer {GOOD}0", 401, "STORE_TOKEN"),
        (f"Bearer {Leave('member', MINE, 'lease_1').token(b't' * 32)}", 401, "STORE_TOKEN"),
        (f"Bearer {Leave('member', MINE, 'lease_9').token(SECRET)}", 403, "STORE_LEASE_OVER"),
        (f"Bearer {Leave('member', MINE, 'lease_2').token(SECRET)}", 403, "STORE_LEASE_OVER"),
    ],
)
def test_who_is_not_let_in_is_told_why(said: str, status: int, code: str) -> None:
    """A lease that lives and is of another store, too."""
    door = Door()
    assert door.ask("GET", f"/{MINE}/a", said) == (status, code)
    assert not door.came


def test_an_ended_lease_is_out_with_the_next_word_and_all_are_when_there_is_none() -> None:
    door = Door()
    door.now += HEARD_S
    assert door.ask("PUT", f"/{MINE}/a") == (200, "")
    door.now += 0.1
    assert door.ask("PUT", f"/{MINE}/a") == (503, "STORE_BLIND")
    door.living.told({"lease_2": THEIRS})
    assert door.ask("PUT", f"/{MINE}/a") == (403, "STORE_LEASE_OVER")
    unheard = Gate(lambda *_: pytest.fail("let in"), door, SECRET, Living())
    told: list[str] = []
    unheard(
        {"REQUEST_METHOD": "GET", "PATH_INFO": f"/{MINE}/", "HTTP_AUTHORIZATION": f"Bearer {GOOD}"},
        lambda line, _: told.append(line),
    )
    assert told[0].startswith("503"), "nobody was told of any lease yet"


@pytest.mark.parametrize(
    ("method", "path", "to"),
    [
        ("GET", f"/{THEIRS}/a", ""),
        ("GET", "/", ""),
        ("PROPFIND", "/", ""),
        ("GET", f"/{MINE}/../{THEIRS}/a", ""),
        ("GET", f"/{MINE}/./a", ""),
        ("GET", f"/{MINE}//{THEIRS}/a", ""),
        ("GET", f"{MINE}/a", ""),
        ("GET", "/.tally-incoming/1", ""),
        ("PUT", f"/{MINE}/.tally-incoming/1", ""),
        ("GET", f"/{MINE}/a\0b", ""),
        ("GET", f"/{MINE}x/a", ""),
        ("DELETE", f"/{MINE}/", ""),
        ("DELETE", f"/{MINE}", ""),
        ("MOVE", f"/{MINE}/", f"/{MINE}/a"),
        ("MOVE", f"/{MINE}/a", f"http://host/{THEIRS}/a"),
        ("MOVE", f"/{MINE}/a", f"http://host/{MINE}/../{THEIRS}/a"),
        ("MOVE", f"/{MINE}/a", f"http://host/{MINE}/%2e%2e/{THEIRS}/a"),
        ("MOVE", f"/{MINE}/a", f"/{MINE}/%2F..%2F{THEIRS}"),
        ("MOVE", f"/{MINE}/a", ""),
        # What a URL's reader leaves out, or ends a path at, is a name to nobody.
        ("MOVE", f"/{MINE}/a", f"http://host/{MINE}/%0A../{THEIRS}/a"),
        ("MOVE", f"/{MINE}/a", f"http://host/{MINE}/.%09./{THEIRS}/a"),
        ("MOVE", f"/{MINE}/a", f"/{MINE}/..%3Fx/{THEIRS}/a"),
        ("MOVE", f"/{MINE}/a", f"/{MINE}/..%3Bx/{THEIRS}/a"),
        ("MOVE", f"/{MINE}/a", f"/{MINE}/..%23/{THEIRS}/a"),
        ("MOVE", f"/{MINE}/a", f"/{MINE}/%25%32%65%25%32%65/{THEIRS}/a"),
        ("MOVE", f"/{MINE}/a", f"/{MINE}/..%5C{THEIRS}"),
        ("PUT", f"/{MINE}/\r../{THEIRS}/a", ""),
        ("PUT", f"/{MINE}/{'a' * 256}", ""),
        ("PUT", f"/{MINE}{'/a' * 2050}", ""),
    ],
)
def test_a_token_reaches_nothing_but_its_store(method: str, path: str, to: str) -> None:
    door = Door()
    assert door.ask(method, path, HTTP_DEPTH="1", HTTP_DESTINATION=to) == (403, "STORE_PATH")
    assert not door.came


def test_what_moves_within_its_store_moves_whatever_host_stands_before() -> None:
    door = Door()
    to = f"https://stores.example/{MINE}/b%20c"
    assert door.ask("MOVE", f"/{MINE}/a", HTTP_DESTINATION=to) == (200, "")
    assert door.came[0]["HTTP_DESTINATION"] == f"/{MINE}/b%20c"


@pytest.mark.parametrize("method", ["COPY", "POST", "PATCH", "LOCK", "PROPPATCH", "TRACE"])
def test_what_takes_room_or_time_without_need_is_not_served(method: str) -> None:
    assert Door().ask(method, f"/{MINE}/a") == (405, "STORE_METHOD")
    assert Door().ask("PROPFIND", f"/{MINE}/", HTTP_DEPTH="infinity") == (403, "STORE_METHOD")
    assert Door().ask("PROPFIND", f"/{MINE}/") == (403, "STORE_METHOD")


def test_what_was_there_before_a_failed_write_is_not_removed_with_it() -> None:
    """Once, of that file: who means it removes it the next time."""
    door = Door("507 Insufficient Storage")
    assert door.ask("PUT", f"/{MINE}/a")[0] == 507
    assert door.ask("DELETE", f"/{MINE}/b")[0] == 507
    assert door.ask("DELETE", f"/{MINE}/a") == (409, "STORE_KEPT")
    assert door.ask("DELETE", f"/{MINE}/a")[0] == 507, "it came through"
    fine = Door("201 Created")
    assert fine.ask("PUT", f"/{MINE}/a")[0] == 201 and fine.ask("DELETE", f"/{MINE}/a")[0] == 201


def test_a_mount_asks_in_vain_for_what_it_is_about_to_rename_over() -> None:
    """What it wrote it may ask for, once."""
    door, draft, latest = Door("201 Created"), f"/{MINE}/draft", f"/{MINE}/the latest"
    door.files = {draft, latest}
    of_file = {"HTTP_DEPTH": "1"}
    for _ in range(3):
        assert door.ask("PUT", draft)[0] == 201
        assert door.ask("PROPFIND", draft, **of_file)[0] == 201
        assert door.ask("PROPFIND", latest, **of_file) == (404, "STORE_UNSEEN")
        to = {"HTTP_DESTINATION": f"/{MINE}/the%20latest", "HTTP_OVERWRITE": "F"}
        assert door.ask("MOVE", draft, **to)[0] == 201
        assert door.came[-1]["HTTP_OVERWRITE"] == "T"
        assert door.ask("PROPFIND", latest, **of_file)[0] == 201
    assert door.ask("PROPFIND", f"/{MINE}/", **of_file)[0] == 201, "a folder it sees"
    assert door.ask("PROPFIND", latest, until(101), **of_file)[0] == 201, "no mount asks so"
    to = {"HTTP_DESTINATION": f"/{MINE}/folder", "HTTP_OVERWRITE": "F"}
    assert door.ask("MOVE", draft, **to)[0] == 201
    assert door.came[-1]["HTTP_OVERWRITE"] == "F", "what is in a folder is not replaced"
    to = {"HTTP_DESTINATION": f"/{MINE}/the%20latest", "HTTP_OVERWRITE": "F"}
    assert door.ask("MOVE", f"/{MINE}/folder", **to)[0] == 201
    assert door.came[-1]["HTTP_OVERWRITE"] == "F", "nor a file by a folder"


def test_two_programs_of_a_member_write_at_once() -> None:
    """Also the same file: each asks once for what it wrote, and an answer that failed counts not."""
    door, a, b = Door("201 Created"), f"/{MINE}/a", f"/{MINE}/b"
    door.files = {a, b}
    for name in (a, b, a):
        door.ask("PUT", name)
    for name in (a, b, a):
        assert door.ask("PROPFIND", name, HTTP_DEPTH="1")[0] == 201
    for name in (a, b):
        assert door.ask("PROPFIND", name, HTTP_DEPTH="1") == (404, "STORE_UNSEEN")
    door.ask("PUT", a)
    door.answers = "503 Service Unavailable"
    assert door.ask("PROPFIND", a, HTTP_DEPTH="1")[0] == 503
    door.ask("PUT", b)  # and fails
    door.answers = "201 Created"
    assert door.ask("PROPFIND", a, HTTP_DEPTH="1")[0] == 201
    assert door.ask("PROPFIND", b, HTTP_DEPTH="1") == (404, "STORE_UNSEEN")


def test_nobody_has_more_than_so_many_requests_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slowly they read or write: others are served, and so are they once one is over. What
    reads and what writes have places of their own.
    """
    monkeypatch.setattr(gate_module, "Places", lambda: Places(wait_s=0.05))
    door, name = Door(), f"/{MINE}/a"
    door.slow = True
    for _ in range(MOST):
        assert door.ask("GET", name)[0] == 200
    assert door.ask("GET", name) == (503, "STORE_BUSY")
    assert door.ask("PUT", name)[0] == 200
    other = f"Bearer {Leave('member', THEIRS, 'lease_2').token(SECRET)}"
    assert door.ask("GET", f"/{THEIRS}/a", other)[0] == 200
    assert door.ask("GET", name, until(101))[0] == 200, "its owner has places of his own"
    door.open.pop(0)()
    assert door.ask("GET", name)[0] == 200 and door.ask("GET", name)[0] == 503
    for close in door.open:
        close()
    door.slow = False
    for path in ("fault", "fault later") * MOST:
        with pytest.raises(RuntimeError):
            door.ask("GET", f"/{MINE}/{path}")
    assert door.ask("GET", name)[0] == 200


def test_a_place_is_waited_for_by_as_many_as_there_are_places() -> None:
    places, said = Places(most=1, wait_s=30), list[bool]()
    assert places.take("a") and places.take("b")
    both = [Thread(target=lambda: said.append(places.take("a"))) for _ in range(2)]
    for one in both:
        one.start()
    while not said:
        sleep(0.001)
    assert said == [False], "one of them without waiting"
    places.leave("a")
    for one in both:
        one.join()
    assert said == [False, True]


def test_an_answer_gives_its_place_back_once_whatever_becomes_of_it() -> None:
    """Sent, closed unsent, broken off; or without its ``close``, which cheroot leaves out where it
    cannot send the head of an empty answer.
    """
    left = list[int]()
    for end in range(4):
        answer = Leaving(iter([b"x", b"y"]), partial(left.append, end))
        if end in (0, 1):
            assert b"".join(answer) == b"xy"
        if end in (1, 2):
            answer.close()
            answer.close()
        if end == 3:
            pieces = iter(answer)
            next(pieces)
            del pieces
    assert left == [0, 1, 2, 3]


def test_what_was_there_before_a_write_that_was_refused_stays() -> None:
    """By one who is let in. Nobody else's removal is held up by it."""
    door, name = Door("204 No Content"), f"/{MINE}/a"
    door.living.told({"lease_1": MINE})
    door.now += HEARD_S + 1
    assert door.ask("PUT", name) == (503, "STORE_BLIND")
    door.now -= HEARD_S + 1
    assert door.ask("DELETE", name) == (409, "STORE_KEPT") and door.ask("DELETE", name)[0] == 204
    theirs = f"/{THEIRS}/a"
    assert door.ask("PUT", theirs) == (403, "STORE_PATH")
    assert door.ask("DELETE", theirs, until(101, store=THEIRS))[0] == 204


def test_as_many_removals_are_refused_as_writes_failed_also_while_one_is_under_way() -> None:
    door, name = Door("507 Insufficient Storage"), f"/{MINE}/a"
    for _ in range(2):
        door.ask("PUT", name)
    door.answers = "204 No Content"
    assert [door.ask("DELETE", name)[0] for _ in range(3)] == [409, 409, 204]
    with pytest.raises(RuntimeError):  # no answer at all
        door.ask("PUT", f"/{MINE}/fault")
    assert door.ask("DELETE", f"/{MINE}/fault") == (409, "STORE_KEPT")
    door.silent = True  # a write that was cut off, which the server has not noticed yet
    door.slow = True
    door.ask("PUT", name)
    door.slow = door.silent = False
    assert [door.ask("DELETE", name)[0] for _ in range(2)] == [409, 409]
    door.open.pop()()
    assert [door.ask("DELETE", name)[0] for _ in range(2)] == [409, 204]


@pytest.mark.parametrize(
    ("method", "said", "status"),
    [
        ("PUT", {"CONTENT_LENGTH": str(1 << 40)}, 200),
        ("PUT", {"HTTP_TRANSFER_ENCODING": "chunked"}, 200),
        ("PUT", {"CONTENT_LENGTH": "-5"}, 413),
        ("PROPFIND", {"CONTENT_LENGTH": "500"}, 200),
        ("PROPFIND", {"CONTENT_LENGTH": str(1 << 20)}, 413),
        ("PROPFIND", {"HTTP_TRANSFER_ENCODING": "chunked"}, 413),
        ("MOVE", {"CONTENT_LENGTH": "1", "HTTP_DESTINATION": f"/{MINE}/b"}, 413),
        ("MOVE", {"CONTENT_LENGTH": "0", "HTTP_DESTINATION": f"/{MINE}/b"}, 200),
        ("DELETE", {"CONTENT_LENGTH": "1"}, 413),
        ("MKCOL", {"HTTP_TRANSFER_ENCODING": "chunked"}, 413),
        ("GET", {"CONTENT_LENGTH": "9"}, 413),
    ],
)
def test_only_a_files_content_is_large(method: str, said: dict[str, str], status: int) -> None:
    """What else has a body takes the server's memory, or time in which its lease may end."""
    door = Door()
    code = "" if status == 200 else "STORE_BODY"
    assert door.ask(method, f"/{MINE}/a", HTTP_DEPTH="1", **said) == (status, code)


def test_its_owner_reaches_it_until_the_time_is_over_whether_a_lease_lives_or_not() -> None:
    door = Door()
    door.living.told({})
    for method in ("GET", "PUT", "MKCOL", "DELETE"):
        assert door.ask(method, f"/{MINE}/a/b.pt", until(101)) == (200, "")
    assert door.ask("GET", f"/{THEIRS}/a", until(101)) == (403, "STORE_PATH")
    door.now += HEARD_S
    assert door.ask("GET", f"/{MINE}/a", until(131)) == (200, ""), "the market is not asked"
    door.now = 131.0
    assert door.ask("GET", f"/{MINE}/a", until(131)) == (403, "STORE_PASS_OVER")


def test_an_owner_makes_no_store_and_removes_none_as_a_whole() -> None:
    """Who removed it, or lets a pass live on, gets no room that no lease was paid for."""
    door = Door()
    assert door.ask("DELETE", f"/{MINE}/", until(101)) == (403, "STORE_PATH")
    door.there.clear()
    for method in ("PUT", "MKCOL", "PROPFIND"):
        asked = door.ask(method, f"/{MINE}/a", until(101), HTTP_DEPTH="1")
        assert asked == (404, "STORE_GONE")
    assert not door.came
    assert door.ask("PUT", f"/{MINE}/a") == (200, ""), "a lease's does"


def test_the_market_asks_how_much_is_there_and_removes_what_no_lease_uses() -> None:
    door, said = Door(), until(101, "market")
    assert door.ask("GET", f"/{MINE}/", said) == (200, "")
    assert json.loads(door.body) == {"bytes": 5, "entries": 2, "used_s": 90}
    assert door.ask("DELETE", f"/{MINE}/", said) == (409, "STORE_IN_USE")
    door.living.told({"lease_2": THEIRS})
    assert door.ask("DELETE", f"/{MINE}/", said) == (200, "") and door.there == {THEIRS}
    assert door.ask("DELETE", f"/{MINE}/", said) == (404, "STORE_GONE")
    assert door.ask("GET", f"/{MINE}/", said) == (404, "STORE_GONE")
    assert door.ask("GET", f"/{THEIRS}/", said) == (403, "STORE_PATH")
    door.now += HEARD_S + 1
    late = until(200, "market", THEIRS)
    assert door.ask("DELETE", f"/{THEIRS}/", late) == (503, "STORE_BLIND"), "who uses it?"
    assert door.there == {THEIRS}


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", "a"), ("GET", "a"), ("DELETE", "a"), ("POST", ""), ("PUT", "")]
)
def test_the_markets_token_opens_nothing_that_is_in_a_store(method: str, path: str) -> None:
    door = Door()
    assert door.ask(method, f"/{MINE}/{path}", until(101, "market")) == (403, "STORE_PATH")
    assert door.ask("GET", f"/{MINE}/", until(100, "market")) == (403, "STORE_PASS_OVER")
    assert not door.came
