"""The table of ``docs/costs.md``, as the benchmark wrote it."""

from __future__ import annotations

from typing import Any

from benchmarks.channel import STEPS
from benchmarks.channel_page import DOCUMENT


def committed_rows() -> list[dict[str, Any]]:
    """Its rows: step, asset, channels, providers, bytes, mem, steps, fee, per_channel."""
    rows: list[dict[str, Any]] = []
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        if len(cells) != 10 or cells[0] not in STEPS:
            continue
        numbers = [int(c.replace(",", "")) for c in cells[2:9]]
        names = ("channels", "providers", "bytes", "mem", "steps", "fee", "per_channel")
        rows.append({"step": cells[0], "asset": cells[1], **dict(zip(names, numbers, strict=True))})
    return rows
