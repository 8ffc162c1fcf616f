"""What a market hands over is signed only if it does the one thing that was asked for, and nothing
else.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from contracts import blueprint
from marketplace.chain.actions.judge import CODES, NotAsAsked, judge, require
from marketplace.domain.money.channel import Closing
from tests.unit.support import snapshot as s
from tests.unit.support.judged import AT, CONSTS, GOLDEN, HONEST, WANTED, cases, golden

ROOT = Path(__file__).parents[3]
ASSETS = ROOT / "web" / "assets"


@pytest.mark.parametrize(("name", "step", "tx", "wrong"), [(c[0], *c[1:]) for c in cases()])
def test_the_rules_that_a_transaction_breaks(
    name: str, step: str, tx: bytes, wrong: list[str]
) -> None:
    assert [f.code for f in judge(tx, WANTED[step]) if f.wrong] == wrong, name
    if wrong:
        with pytest.raises(NotAsAsked):
            require(tx, WANTED[step])
    else:
        require(tx, WANTED[step])


def test_every_rule_is_broken_by_some_case() -> None:
    broken = {code for *_, wrong in cases() for code in wrong}
    assert broken == set(CODES) - {"STAGE"}  # a closing channel is below


def test_a_channel_that_is_closing_takes_no_step() -> None:
    stage = s.datum.stage_bytes(Closing(CONSTS, 3 * s.ADA, s.NOW_MS))
    closing = replace(WANTED["close"], channel=replace(AT, datum=stage))
    assert "STAGE" in [f.code for f in judge(HONEST["close"], closing) if f.wrong]


def test_the_vectors_that_the_console_answers_are_these() -> None:
    assert GOLDEN.read_text() == golden(), "run: python -m tests.unit.support.judged"


def test_the_console_knows_the_scripts_by_itself() -> None:
    text = (ASSETS / "chain" / "scripts.js").read_text()
    found = dict(re.findall(r'(stub|settle): "([0-9a-f]{56})"', text))
    ada = blueprint.ada()
    assert found == {"stub": ada.stub_hash.hex(), "settle": ada.settle_hash.hex()}
    for asset in ASSETS.rglob("*.js"):  # and asks nobody which they are
        assert "stub_hash" not in asset.read_text(), asset.name


def test_the_console_names_the_same_rules_in_the_same_order() -> None:
    text = (ASSETS / "chain" / "judge.js").read_text()
    assert ("BYTES", *re.findall(r'^  \["([A-Z]+)", ', text, re.M)) == CODES
    page = (ROOT / "docs" / "security.md").read_text()
    assert re.findall(r"^\| `([A-Z]+)` \|", page, re.M) == list(CODES)
