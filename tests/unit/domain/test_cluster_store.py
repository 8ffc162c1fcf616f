"""``cluster.store`` of a job file, and the tokens by which the market's own is reached."""

from __future__ import annotations

import json
from typing import Any

import pytest

from marketplace.client.jobs import jobfiles
from marketplace.domain.errors import Malformed
from marketplace.domain.hkdf import hkdf_sha256
from marketplace.domain.work.cluster_store import (
    KEY,
    Leave,
    Store,
    StorePass,
    StorePlace,
    id_of,
    key_of,
    want_web,
)
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.jobfile import BadValue, JobFileRefused, UnknownKey, write

FILE = "version: 1\nimage: python:3.11\n"
OWN = "secrets: [STORE_USER, STORE_PASSWORD]\n"
SECRET, OTHER = b"s" * 32, b"t" * 32


def _read(store: str, more: str = "") -> JobSpec:
    return jobfiles.loads(f"{FILE}cluster: {{members: 3, store: {store}}}\n{more}").spec()


@pytest.mark.parametrize(
    ("said", "more", "store", "sealed"),
    [
        ("{name: run-1}", "", Store("run-1"), {KEY}),
        ("{name: run-1}", "secrets: [TOKEN]\n", Store("run-1"), {KEY, "TOKEN"}),
        ("{url: s3://bucket/a/b}", OWN, Store(url="s3://bucket/a/b"), {"STORE_USER", "STORE_PASSWORD"}),
        (
            "{url: s3://bucket, endpoint: https://s3.example:9000}", OWN,
            Store(url="s3://bucket", endpoint="https://s3.example:9000"),
            {"STORE_USER", "STORE_PASSWORD"},
        ),
        (
            "{url: https://dav.example/me/run}", OWN, Store(url="https://dav.example/me/run"),
            {"STORE_USER", "STORE_PASSWORD"},
        ),
    ],
)  # fmt: skip
def test_what_a_file_says_is_hashed_sent_and_written_as_it_stands(
    said: str, more: str, store: Store, sealed: set[str]
) -> None:
    spec = _read(said, more)
    assert spec.store == store and set(spec.sealed) == sealed
    assert JobSpec.from_wire(json.loads(json.dumps(spec.to_wire()))) == spec
    assert jobfiles.loads(json.dumps(write(spec))).spec() == spec
    without = jobfiles.loads(f"{FILE}cluster: {{members: 3}}\n{more}").spec()
    assert without.hash != spec.hash and "store" not in without.to_wire()["cluster"]
    assert set(without.sealed) == set(without.secrets)


@pytest.mark.parametrize(
    ("said", "more", "kind", "path"),
    [
        ("{}", "", BadValue, "cluster.store"),
        ("{name: a, url: 's3://bucket'}", "", BadValue, "cluster.store"),
        ("{name: ../other}", "", BadValue, "cluster.store"),
        ("{name: a/b}", "", BadValue, "cluster.store"),
        ("{name: '..'}", "", BadValue, "cluster.store"),
        ("{name: A}", "", BadValue, "cluster.store"),
        ("{name: -a}", "", BadValue, "cluster.store"),
        (f"{{name: {'a' * 65}}}", "", BadValue, "cluster.store"),
        ("{name: a, endpoint: 'https://s3.example'}", "", BadValue, "cluster.store"),
        ("{url: 'ftp://host/x'}", OWN, BadValue, "cluster.store"),
        ("{url: 'file:///etc'}", OWN, BadValue, "cluster.store"),
        ("{url: 'http://dav.example/x'}", OWN, BadValue, "cluster.store"),
        ("{url: 'https://me:word@dav.example/x'}", OWN, BadValue, "cluster.store"),
        ("{url: 'https://dav.example/x?y=1'}", OWN, BadValue, "cluster.store"),
        ("{url: 'https://dav.example/../x'}", OWN, BadValue, "cluster.store"),
        ("{url: 's3://bucket/../x'}", OWN, BadValue, "cluster.store"),
        ("{url: 's3://b,env_auth=true/x'}", OWN, BadValue, "cluster.store"),
        ("{url: 's3://'}", OWN, BadValue, "cluster.store"),
        ("{path: /x}", "", UnknownKey, "cluster.store.path"),
        ("{name: a}", OWN, BadValue, "secrets"),
        ("{name: a}", f"secrets: [{KEY}]\n", BadValue, "secrets"),
        ("{url: 's3://bucket'}", "secrets: [STORE_USER]\n", BadValue, "secrets"),
        ("{url: 's3://bucket'}", "secrets: [TOKEN]\n", BadValue, "secrets"),
        ("{url: 's3://bucket'}", "", BadValue, "secrets"),
    ],
)
def test_each_mistake_of_a_store_is_named(
    said: str, more: str, kind: type[JobFileRefused], path: str
) -> None:
    with pytest.raises(kind) as refused:
        _read(said, more)
    assert refused.value.fields["path"] == path


@pytest.mark.parametrize(
    "store",
    [
        {}, {"name": ""}, {"name": "a", "url": ""}, {"name": "a/../b"}, {"name": 1}, {"more": "x"},
        {"url": "https://dav.example/x", "endpoint": "https://s3.example"}, "run-1", None,
        {"url": "https://dav.example/a\nb"}, {"name": "a\n"},
    ],
)  # fmt: skip
def test_what_is_no_store_is_refused_on_the_wire(store: Any) -> None:
    wire = _read("{name: run-1}").to_wire()
    wire["cluster"] = {**wire["cluster"], "store": store}
    with pytest.raises(Malformed):
        JobSpec.from_wire(wire)


def test_secrets_that_are_not_those_of_its_store_are_refused_on_the_wire() -> None:
    wire = _read("{name: run-1}").to_wire()
    for secrets in ([KEY], ["STORE_USER", "STORE_PASSWORD"]):
        with pytest.raises(Malformed, match="secrets"):
            JobSpec.from_wire({**wire, "secrets": secrets})


def test_a_token_opens_its_store_for_its_lease_alone() -> None:
    store, other = id_of("acct_1", "run"), id_of("acct_1", "ran")
    leave = Leave("member", store, "lease_1")
    said = leave.token(SECRET)
    assert Leave.opened(SECRET, said) == leave
    mac = said.rpartition(".")[2]
    forged = [
        said[:-1] + ("0" if said[-1] != "0" else "1"),
        f"{other}.lease_1.{mac}",
        f"{store}.lease_2.{mac}",
        f"{store}.lease_1.",
        f"{store}.lease_1",
        "",
        ".." + said,
        said + ".x",
        said.upper(),
        leave.token(OTHER),
        "é" * 32 + ".lease_1." + mac,
    ]
    assert [Leave.opened(SECRET, one) for one in forged] == [None] * len(forged)


def test_no_kind_of_token_is_another_nor_lasts_longer_than_it_says() -> None:
    """An owner's is not the market's, and neither is a member's of a lease that is called so."""
    store, other = id_of("acct_1", "run"), id_of("acct_1", "ran")
    owner, market = Leave("owner", store, until_s=900), Leave("market", store, until_s=900)
    for leave in (owner, market):
        assert Leave.opened(SECRET, leave.token(SECRET)) == leave
    mac = owner.token(SECRET).rpartition(".")[2]
    forged = [
        f"market.{store}.900.{mac}", f"owner.{store}.901.{mac}", f"owner.{store}.0900.{mac}",
        f"owner.{other}.900.{mac}", f"owner.{store}.900.0.{mac}", f"{store}.900.{mac}",
        f"member.{store}.900.{mac}", f"owner.{store}.-900.{mac}", f"owner.{store}..{mac}",
        f"owner.{store}.{mac}", owner.token(OTHER),
        Leave("member", store, f"{store} 900").token(SECRET),
    ]  # fmt: skip
    assert [Leave.opened(SECRET, one) for one in forged] == [None] * len(forged)


def test_a_name_is_each_accounts_own() -> None:
    """Also where one account's name and another's name would read alike, put together."""
    ids = {
        id_of("acct_1", "run"), id_of("acct_2", "run"), id_of("acct_1", "run-1"),
        id_of("acct_1/run", "x"), id_of("acct_1", "run/x"),
    }  # fmt: skip
    assert len(ids) == 5 and all(len(one) == 32 for one in ids)


def test_the_key_follows_from_the_purse_and_the_name_alone() -> None:
    seed = b"p" * 32
    assert key_of(seed, "run") == key_of(seed, "run") and len(key_of(seed, "run")) == 64
    assert len({key_of(seed, "run"), key_of(seed, "ran"), key_of(b"q" * 32, "run")}) == 3
    assert key_of(seed, "run") != hkdf_sha256(seed, b"tally/volumes/v1").hex()


def test_a_pass_is_read_as_it_was_sent_and_shows_no_token() -> None:
    given = StorePlace("https://stores.example", SECRET).give("acct_1", "run", "lease_1")
    assert StorePass.from_wire(given.to_wire()) == given
    assert given.url == f"https://stores.example/{id_of('acct_1', 'run')}/"
    assert given.token not in repr(given)
    for broken in (
        [given.url], [given.url, ""], [given.url, "a b"], [given.url, "a\nb"], ["ftp://x/", "t"],
        ["http://stores.example/x/", "t"], [given.url, given.token, 1], None,
    ):  # fmt: skip
        with pytest.raises(Malformed):
            StorePass.from_wire(broken)


@pytest.mark.parametrize(
    ("url", "at"),
    [
        ("https://host", ("host", 443)), ("https://host:8443/a/b_c", ("host", 8443)),
        ("http://127.0.0.1:9000", ("127.0.0.1", 9000)), ("http://10.1.2.3/x", ("10.1.2.3", 80)),
        ("http://localhost:1/", ("localhost", 1)),
    ],
)  # fmt: skip
def test_an_address_is_read(url: str, at: tuple[str, int]) -> None:
    """In the clear none but within a private network."""
    assert want_web(url) == at


@pytest.mark.parametrize(
    "url",
    ["http://8.8.8.8/x", "https://", "https://ho st/", "https://host:99999/", "https://[::1/", "x"],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(Malformed):
        want_web(url)
