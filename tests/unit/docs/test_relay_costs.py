"""What docs/spo.md says that a relay costs follows from the prices and the fee that it names."""

from __future__ import annotations

import re
from pathlib import Path

from adapter.devices.inventory import CORE_RATE_MICRO
from marketplace.cli.embedded import product
from marketplace.domain.units import LOVELACE_PER_ADA

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "spo.md").read_text()
MONTH_S = 30 * 86_400
CORES, GIGABYTES = 2, (300, 20)
RENEWALS = 4 * 2


def row(begins: str) -> list[float]:
    """The figures of the row that begins so."""
    found = re.search(rf"^\| {re.escape(begins)}.*?\| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    assert found, begins
    return [float(one) for one in found.groups()]


def test_a_months_costs_are_those_of_the_prices_that_are_named() -> None:
    core, disk = CORE_RATE_MICRO / 1_000_000, 0.02
    assert f'disk = "{disk} lovelace"' in Path(product.__file__).read_text()
    assert f"{core:g} lovelace per core-second and {disk} lovelace" in PAGE
    fees = (ROOT / "docs" / "costs.md").read_text()
    (said,) = re.findall(
        r"^\| top_up \| ADA \| 1 \|.*\| ([\d,]+) \| [\d.]+ \|$", fees, re.MULTILINE
    )
    fee = int(said.replace(",", ""))
    assert f"{fee / LOVELACE_PER_ADA} each" in PAGE
    cores = CORES * core * MONTH_S / LOVELACE_PER_ADA
    volumes = [size * disk * MONTH_S / LOVELACE_PER_ADA for size in GIGABYTES]
    renewed = RENEWALS * fee / LOVELACE_PER_ADA
    assert row("2 cores") == [round(cores, 2)] * 2
    assert row("the volume") == [round(one, 2) for one in volumes]
    assert row("four renewals") == [round(renewed, 2)] * 2
    assert row("in all") == [round(cores + one + renewed, 2) for one in volumes]
