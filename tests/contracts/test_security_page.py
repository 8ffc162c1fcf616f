"""``docs/security.md`` keeps its promises: every threat has a test that exists, every figure
holds.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.contracts.support.mutants import MUTANTS
from tests.contracts.support.mutations import mutations, variants
from tests.contracts.support.scenes import ADA, TOKEN, controls

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/security.md").read_text(encoding="utf-8")

# The list of the channel's design, in its own words.
THREATS = [
    "double satisfaction, own script",
    "double satisfaction, foreign script",
    "payout shared by two runs",
    "interleaved payouts",
    "steps and outputs permuted in mixed batches",
    "datum hijack or missing",
    "reference-script output",
    "dust tokens",
    "stake theft",
    "min-ADA at Close and refund",
    "voucher replay over channel, network or version",
    "session key reused",
    "negative and overflowing amounts",
    "wrong key lengths",
    "other purposes",
    "deregistration",
    "many withdrawals",
    "non-zero reward balance",
    "infinite bounds",
    "off-by-one slot",
    "TopUp spam",
    "old voucher in a stranger's Finish before expiry",
    "stranger's Finish after expiry paying the wrong place",
    "fee_bps of 10000",
    "one voucher shown to two adapters",
    "a batch that hides a second step under one signature",
    "service after Close",
    "batch poisoning by one bad channel",
    "claim raced by claim",
    "claim raced by close",
    "rollback of open",
    "rollback of top-up and claim",
    "lagging indexer",
    "lost collateral",
]


def rows() -> dict[str, str]:
    """Threat → the last cell of its row."""
    section = PAGE.split("## Threats")[1].split("\n## ")[0]
    cells = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    return {row[0].strip(): row[2] for row in cells[1:]}


def test_every_threat_of_the_design_has_a_row() -> None:
    assert set(THREATS) <= set(rows())


def test_every_row_names_tests_that_exist() -> None:
    for threat, cell in rows().items():
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", cell)
        assert named, threat
        for path, name in named:
            source = (ROOT / path).read_text(encoding="utf-8")
            assert f"def {name}(" in source, (threat, path, name)


def test_every_file_that_the_page_names_exists() -> None:
    for path in re.findall(r"`((?:tests|contracts|marketplace)/[\w/]+\.\w+)`", PAGE):
        assert (ROOT / path).exists(), path


def test_the_figures_hold() -> None:
    assert f"{len(controls(ADA))} controls, {len(variants(ADA))} harmless variants" in PAGE
    assert f"| {len(MUTANTS)}, none survives |" in PAGE
    assert min(len(mutations(ADA)), len(mutations(TOKEN))) >= 300
    assert "over 300 for each asset" in PAGE
