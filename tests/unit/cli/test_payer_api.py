"""The payer's API: who comes in, what is passed on, and what one day may cost."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from marketplace.cli.payer_api.app import (
    BudgetMissing,
    GangElsewhere,
    SecretsElsewhere,
    problem,
    readable,
)
from marketplace.cli.payer_api.daybook import BOOK, ApiTaken, DayBook, DaySpent, KeyReused
from marketplace.cli.payer_api.rules import (
    TOKEN,
    FromAPage,
    NotPassedOn,
    TokenWrong,
    check_passed,
    let_in,
    token_of,
)
from marketplace.client.net.http import problem as of_market
from marketplace.disk import JournalDamaged
from marketplace.domain.errors import Malformed, Refusal

ADA = 1_000_000
GOOD = {"host": "127.0.0.1:7171", "authorization": "Bearer secret"}


def test_whoever_has_the_token_comes_in() -> None:
    let_in(GOOD, "secret", 7171)
    let_in({**GOOD, "host": "localhost:7171"}, "secret", 7171)


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({"authorization": "Bearer secreT"}, TokenWrong),
        ({"authorization": "Bearer "}, TokenWrong),
        ({"authorization": "Basic secret"}, TokenWrong),
        ({"authorization": "Bearer sécret"}, TokenWrong),
        ({"origin": "http://127.0.0.1:7171"}, FromAPage),  # its own address, but a page's
        ({"origin": "null"}, FromAPage),
        ({"host": "evil.example:7171"}, FromAPage),  # a name that was made to lead here
        ({"host": "127.0.0.1"}, FromAPage),
        ({"host": "127.0.0.1:8000"}, FromAPage),
    ],
)
def test_others_do_not(changed: dict[str, str], refusal: type[Exception]) -> None:
    with pytest.raises(refusal):
        let_in({**GOOD, **changed}, "secret", 7171)
    for missing in ("host", "authorization"):
        with pytest.raises((FromAPage, TokenWrong)):
            let_in({k: v for k, v in GOOD.items() if k != missing}, "secret", 7171)


def test_the_token_is_its_owners_alone_and_new_once_its_file_is_gone(tmp_path: Path) -> None:
    token = token_of(tmp_path)
    assert token == token_of(tmp_path) and len(token) >= 40
    assert stat.S_IMODE((tmp_path / TOKEN).stat().st_mode) == 0o600
    (tmp_path / TOKEN).unlink()
    assert token_of(tmp_path) != token
    for emptied in ("", "\n", "short\n"):
        (tmp_path / TOKEN).write_text(emptied)
        assert len(token_of(tmp_path)) >= 40


JOB, HASH = "job_01M8A3617Y518BNR393TSC9RRK", "ab" * 32


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/network"),
        ("GET", "/v1/offers"),
        ("GET", f"/v1/jobs/{JOB}"),
        ("GET", f"/v1/jobs/{JOB}/logs"),
        ("GET", f"/v1/jobs/{JOB}/invoice"),
        ("GET", f"/v1/jobs/{JOB}/outputs/{HASH}"),
        ("GET", "/v1/spend.csv"),
        ("POST", "/v1/quotes"),
        ("POST", f"/v1/jobs/{JOB}/stop"),
        ("PUT", f"/v1/blobs/{HASH}"),
    ],
)
def test_what_a_program_needs_is_passed_on(method: str, path: str) -> None:
    check_passed(method, path)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/keys"),  # would outlive the token
        ("GET", "/v1/keys"),
        ("DELETE", "/v1/keys/key_1"),
        ("POST", "/v1/auth/verify"),
        ("POST", "/v1/auth/logout"),
        ("POST", "/v1/webhooks"),
        ("POST", "/v1/leases/lease_1/sign"),
        ("POST", f"/v1/jobs/{JOB}/resume"),
        ("POST", f"/v1/jobs/{JOB}/exec"),
        ("POST", f"/v1/channels/{HASH}/witness"),
        ("POST", "/v1/gangs"),
        ("DELETE", f"/v1/blobs/{HASH}"),
        ("GET", "/v1/jobs/../keys"),
        ("GET", "/v1/jobs//keys"),
        ("GET", "/v1/jobs/x/../../keys"),
        ("GET", "/v1/jobs/x\n"),
        ("GET", "//evil.example/v1/jobs"),
        ("GET", "/metrics"),
        ("PATCH", "/v1/jobs"),
    ],
)
def test_nothing_else_is(method: str, path: str) -> None:
    with pytest.raises(NotPassedOn):
        check_passed(method, path)


# --- the day ---


def book(home: Path, most: int = 10 * ADA) -> DayBook:
    return DayBook(home, most)


def test_budgets_of_a_day_stay_within_the_cap_also_after_a_restart(tmp_path: Path) -> None:
    first = book(tmp_path)
    first.count("a", "x", 6 * ADA)
    with pytest.raises(DaySpent, match=r"4\.000000 ADA of today's"):
        first.count("b", "y", 5 * ADA)
    first.close()
    again = book(tmp_path)
    with pytest.raises(DaySpent):
        again.count("b", "y", 5 * ADA)
    again.count("b", "y", 4 * ADA)
    again.forget("b")  # the market took no such job
    again.count("c", "z", 4 * ADA)


def test_yesterdays_jobs_count_no_more(tmp_path: Path) -> None:
    (tmp_path / BOOK).write_text(
        json.dumps({"version": 1, "jobs": {"a": ["2026-01-01", 10 * ADA, "x", "job_1"]}})
    )
    one = book(tmp_path)
    one.count("b", "y", 10 * ADA)
    assert one.known("a", "x") == "job_1"


def test_a_key_stands_for_one_job(tmp_path: Path) -> None:
    one = book(tmp_path)
    one.count("a", "x", ADA)
    assert one.known("a", "x") == ""  # asked for, and not heard of: it is asked again
    one.count("a", "x", ADA)
    one.took("a", "job_1")
    one.close()
    again = book(tmp_path)
    assert again.known("a", "x") == "job_1" and again.known("b", "x") == ""
    with pytest.raises(KeyReused):
        again.known("a", "other")
    with pytest.raises(DaySpent):
        again.count("b", "y", 9 * ADA + 1)  # the one counted once


def test_two_processes_do_not_spend_one_cap_twice(tmp_path: Path) -> None:
    first = book(tmp_path)
    with pytest.raises(ApiTaken):
        book(tmp_path)
    first.close()
    book(tmp_path).close()


@pytest.mark.parametrize("content", ["", "{}", '{"jobs": {"a": [1]}}', '{"jobs": [1]}'])
def test_a_book_that_cannot_be_read_is_no_empty_one(tmp_path: Path, content: str) -> None:
    (tmp_path / BOOK).write_text(content)
    with pytest.raises(JournalDamaged):
        book(tmp_path)
    (tmp_path / BOOK).unlink()
    book(tmp_path).close()  # the refusal let go of the lock


# --- what is refused ---

FILE = f'version: 1\nimage: "sha256:{HASH}"\ncommand: [x]\n'


@pytest.mark.parametrize(
    ("more", "refusal"),
    [
        ("", BudgetMissing),
        ("price: {budget: null}\n", BudgetMissing),
        ("price: {max_per_core_second: 50 lovelace}\n", BudgetMissing),
        # Sealed to the poster's own provider, from the payer's environment.
        ("price: {budget: 1 ADA}\nsecrets: [TALLY_PASSPHRASE]\n", SecretsElsewhere),
        ("price: {budget: 1 ADA}\ngang: {members: 2}\n", GangElsewhere),
    ],
)
def test_what_is_not_for_a_payer_that_asks_nobody(more: str, refusal: type[Refusal]) -> None:
    with pytest.raises(refusal) as refused:
        readable((FILE + more).encode())
    assert refused.value.remedy
    assert readable((FILE + "price: {budget: 1 ADA}\n").encode()).draft.price.budget == ADA


def test_a_refusal_is_told_as_the_market_tells_it() -> None:
    body = b'{"code": "NO_MATCH", "detail": "0 of 3", "remedy": "ask for less", "fields": {"a": 1}}'
    answer = problem(of_market(422, body))
    told = json.loads(bytes(answer.body))
    assert answer.status_code == 422 and told["code"] == "NO_MATCH"
    assert told["detail"] == "0 of 3" and told["fields"] == {"a": 1}
    assert problem(of_market(503, b"")).status_code == 503
    assert problem(TokenWrong("x")).status_code == 401
    assert problem(NotPassedOn("x")).status_code == 403
    assert problem(DaySpent("x")).status_code == 422 and problem(KeyReused("x")).status_code == 409
    assert problem(Malformed("x", field="files")).status_code == 422
