"""Who moves a volume's content says so himself, for that volume, that way and that key."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marketplace.domain.errors import Malformed
from marketplace.domain.keys import Signer
from marketplace.domain.work.volume_move import Move, MoveUnsigned, Way

SESSION, OTHER = Signer(b"\x01" * 32), Signer(b"\x02" * 32)
MOVE = Move.sign(SESSION, "lease_1", Way.EXPORT, b"age1recipient")


def test_it_is_read_as_it_was_said() -> None:
    assert Move.of("lease_1", MOVE.words()) == MOVE
    MOVE.verify(SESSION.verify_key)


@pytest.mark.parametrize(
    "changes",
    [
        {"lease": "lease_2"},
        {"way": Way.IMPORT},
        {"key": b"age1themarkets"},
        {"signature": bytes(64)},
        {"signature": b""},
    ],
)
def test_nobody_makes_another_of_it(changes: dict[str, object]) -> None:
    with pytest.raises(MoveUnsigned):
        replace(MOVE, **changes).verify(SESSION.verify_key)


def test_another_key_opens_no_volume() -> None:
    forged = Move.sign(OTHER, "lease_1", Way.EXPORT, b"age1themarkets")
    with pytest.raises(MoveUnsigned):
        forged.verify(SESSION.verify_key)


def test_each_has_a_name_of_its_own() -> None:
    names = {
        replace(MOVE, **changes).name
        for changes in ({}, {"lease": "lease_2"}, {"way": Way.IMPORT}, {"key": b"x"})
    }
    assert len(names) == 4
    assert replace(MOVE, signature=b"").name == MOVE.name  # whatever signature is made for it


@pytest.mark.parametrize(
    "words",
    [[], ["sh"], ["export", "6b"], ["export", "", "00"], ["export", "zz", "00"], ["copy", "6b", "00"],
     ["import", "6b" * 513, "00"]],
)  # fmt: skip
def test_nothing_else_is_taken(words: list[str]) -> None:
    with pytest.raises(Malformed):
        Move.of("lease_1", words)
