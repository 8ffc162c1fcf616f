"""Who reaches which store of the market's, request by request, before the server behind is asked."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from marketplace.cluster_store.gate import HEARD_S, Environ, Gate, Living, StartResponse
from marketplace.domain.work.cluster_store import id_of, token

SECRET = b"s" * 32
MINE, THEIRS = id_of("acct_1", "run"), id_of("acct_2", "run")
GOOD = token(SECRET, MINE, "lease_1")


class Door:
    """A gate, what its clock says, and what came through it."""

    def __init__(self, answers: str = "200 OK") -> None:
        self.now, self.came, self._answers = 100.0, list[Environ](), answers
        self.living = Living(lambda: self.now)
        self.living.told({"lease_1": MINE, "lease_2": THEIRS})
        self.gate = Gate(self._behind, SECRET, self.living)

    def _behind(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        self.came.append(environ)
        start_response(self._answers, [])
        return [b""]

    def ask(
        self, method: str, path: str, said: str = f"Bearer {GOOD}", **more: str
    ) -> tuple[int, str]:
        """Status and code."""
        status: list[str] = []

        def start(line: str, _headers: Any, *_: Any) -> None:
            status.append(line)

        asked = {"REQUEST_METHOD": method, "PATH_INFO": path, "HTTP_AUTHORIZATION": said, **more}
        body = b"".join(self.gate(asked, start))
        return int(status[0].split()[0]), json.loads(body)["code"] if body else ""


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
        (f"Bearer {token(b't' * 32, MINE, 'lease_1')}", 401, "STORE_TOKEN"),
        (f"Bearer {token(SECRET, MINE, 'lease_9')}", 403, "STORE_LEASE_OVER"),
        (f"Bearer {token(SECRET, MINE, 'lease_2')}", 403, "STORE_LEASE_OVER"),
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
    unheard = Gate(lambda *_: pytest.fail("let in"), SECRET, Living())
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
