"""Tokens of the market's registry: what one allows, and whose it must be."""

from __future__ import annotations

import time

import pytest

from marketplace.domain.errors import Unauthenticated
from marketplace.registry.tokens import LIVES_S, Scope, TokenKey, TokenReader, scopes_of

KEY = TokenKey(bytes(range(32)))
PUSH = Scope("repository", "abc/train", frozenset({"pull", "push"}))


def bearer(key: TokenKey, service: str = "images.test", at: int = 0, quota: int = 7) -> str:
    return "Bearer " + key.token(service, "abc", [PUSH], at or int(time.time()), quota)


def test_what_was_granted_is_read_and_nothing_else() -> None:
    reader = TokenReader(KEY.certificate, "images.test")
    assert reader.read(bearer(KEY)) == ([PUSH], 7)
    for asked, found in [
        (("repository", "abc/train", "push"), 7),
        (("repository", "abc/train", "delete"), None),
        (("repository", "abc/trai", "push"), None),
        (("namespace", "abc/train", "push"), None),
    ]:
        assert reader.quota(bearer(KEY), *asked) == found


def test_a_key_is_the_same_for_all_processes_of_a_market() -> None:
    again = TokenKey(bytes(range(32)))
    assert TokenReader(again.certificate, "images.test").read(bearer(KEY)) == ([PUSH], 7)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Basic abc",
        "Bearer ",
        "Bearer a.b.c",
        bearer(TokenKey(bytes(32))),
        bearer(KEY, "other.test"),
        bearer(KEY, at=int(time.time()) - LIVES_S - 60),
        bearer(KEY, at=int(time.time()) + 3600),
    ],
    ids=["none", "basic", "empty", "rubbish", "another-market", "another-registry", "old", "early"],
)
def test_other_tokens_are_refused(header: str) -> None:
    reader = TokenReader(KEY.certificate, "images.test")
    with pytest.raises(Unauthenticated):
        reader.read(header)
    assert reader.quota(header, "repository", "abc/train", "push") is None


def test_an_unsigned_token_is_refused() -> None:
    head, body, _ = bearer(KEY).removeprefix("Bearer ").split(".")
    none = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0"  # {"alg":"none","typ":"JWT"}
    reader = TokenReader(KEY.certificate, "images.test")
    for token in (f"{none}.{body}.", f"{head}.{body}."):
        with pytest.raises(Unauthenticated):
            reader.read(f"Bearer {token}")


def test_scopes_are_read_as_docker_writes_them() -> None:
    assert scopes_of(["repository:abc/train:pull,push registry:catalog:*", "nonsense", "a:b", ""]) == [
        PUSH, Scope("registry", "catalog", frozenset({"*"})),
    ]  # fmt: skip
    assert scopes_of(["repository:127.0.0.1:5000/a:pull"]) == [
        Scope("repository", "127.0.0.1:5000/a", frozenset({"pull"}))
    ]
