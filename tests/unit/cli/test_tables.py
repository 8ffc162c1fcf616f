"""Tables of the command line in a real terminal of a given width: keys, references and words are
never broken.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from marketplace.cli.shared.tables import show_quote
from marketplace.client.net.answers import (
    FeesAnswer,
    JobQuoteAnswer,
    MemberQuoteAnswer,
    RouteFeesAnswer,
)
from tests.unit.support.terminal import lines_of

SESSION, OUTPUT = "ab" * 32, "cd" * 32 + "#12"
JOB = "job-0123456789abcdef"
CODE = f"""
from marketplace.cli.shared.printing import print_table
print_table("channels", ("session key", "output", "stage", "holds", "claimed"),
    [("{SESSION}", "{OUTPUT}", "closing", "10.123456 ADA", "2 ADA")] * 2, whole=("session key", "output"))
print_table("jobs", ("job", "name", "state", "spent", "at most", "device"),
    [("{JOB}", "a job", "ENDED USER_STOPPED", "0.123456 ADA", "10 ADA", "SIMULATED NVIDIA H100 80GB HBM3")], whole=("job",))
"""
WORDS = ("session key", "closing", "10.123456 ADA", "USER_STOPPED", "0.123456", "SIMULATED", "H100")


def shown(columns: int) -> list[str]:
    return lines_of([sys.executable, "-c", CODE], columns, os.environ)


@pytest.mark.parametrize("columns", [80, 100, 250])
def test_nothing_is_broken_over_lines(columns: int) -> None:
    lines = shown(columns)
    assert max(map(len, lines)) <= columns
    for text, times in ((SESSION, 2), (OUTPUT, 2), (JOB, 1)):
        assert sum(text in line for line in lines) == times, lines
    for word in WORDS:
        assert any(word in line for line in lines), (word, lines)


def test_columns_go_in_the_stated_order_and_are_named() -> None:
    code = """
from marketplace.cli.shared.printing import print_table
print_table("jobs", ("job", "state", "device", "region"),
    [("j" * 30, "ENDED COMPLETED", "an H100 of 80 GB", "EU")] * 2, whole=("job",), drop=("region", "device"))
"""
    for columns, gone in ((80, []), (56, ["region"]), (48, ["region", "device"])):
        lines = lines_of([sys.executable, "-c", code], columns, os.environ)
        assert max(map(len, lines[:-1])) <= columns
        told = [line for line in lines if line.startswith("no room for: ")]
        assert [line.split(": ")[1].split(" (")[0] for line in told] == (
            [", ".join(sorted(gone, key=["device", "region"].index))] if gone else []
        ), lines


def test_a_pipe_gets_one_line_a_row() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60, check=True
    )
    rows = [line.split() for line in done.stdout.splitlines() if SESSION in line]
    assert [row[:3] for row in rows] == [[SESSION, OUTPUT, "closing"]] * 2


def test_a_quote_for_a_part_of_a_device_says_what_a_part_is_worth(
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole: MemberQuoteAnswer = {
        "resource": "gpu", "units_milli": 1000, "device": "T4", "rate_micro": 1, "ceiling": 1,
        "provider": "ab" * 32, "simulated": False,
    }  # fmt: skip
    show_quote(whole)
    show_quote({**whole, "resource": "core", "units_milli": 500})
    assert "nothing enforces" not in capsys.readouterr().out
    show_quote({**whole, "units_milli": 400})
    assert "nothing enforces it" in capsys.readouterr().out


FEES: FeesAnswer = {
    "consumer": 176_149, "provider": 237_818, "together": 49_684, "top_up": 234_254,
    "smallest": 413_967,
}  # fmt: skip


def test_a_quote_says_what_is_served_before_a_block_and_who_pays_the_chain(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer: MemberQuoteAnswer = {
        "resource": "core", "units_milli": 500, "device": "cores", "rate_micro": 1, "ceiling": 1,
        "provider": "ab" * 32, "simulated": False,
    }  # fmt: skip
    show_quote({**answer, "allowance": 400_000, "minimum": 231_000, "fees": FEES})
    said = " ".join(capsys.readouterr().out.split())
    assert "up to 0.400000 ADA are served before its block" in said
    assert (
        "you pay 0.176149 ADA to the network; the provider 0.237818 ADA for the channel's" in said
    )
    assert "others' end with it (0.049684 ADA, which the market pays)" in said
    assert "below 0.413967 ADA the network takes more than the provider gets" in said
    assert "this provider takes none that cannot cost 0.231000 ADA" in said
    show_quote({**answer, "fees": {**FEES, "consumer": 0, "smallest": 0}})
    said = " ".join(capsys.readouterr().out.split())
    assert "you pay nothing to the network" in said
    assert "smallest" not in said
    show_quote({**answer, "fees": None})  # no chain says it
    show_quote(answer)  # as of a market of before
    said = " ".join(capsys.readouterr().out.split())
    assert "once a block holds it" in said
    assert "cannot cost" not in said
    assert "to the network" not in said


ROUTED: RouteFeesAnswer = {"carried": True, "route_bps": 50, "fee": 2_500, "hop_fee": 25_000}


def test_a_quote_compares_a_channel_of_its_own_with_the_router(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer: JobQuoteAnswer = {
        "resource": "core", "units_milli": 500, "device": "cores", "rate_micro": 1,
        "ceiling": 500_000, "provider": "ab" * 32, "simulated": False, "alternatives": [],
        "fees": FEES, "routed": ROUTED,
    }  # fmt: skip

    def said(answer: JobQuoteAnswer, has_hop: bool = False) -> str:
        show_quote(answer, has_hop=has_hop)
        return " ".join(capsys.readouterr().out.split())

    first = said(answer)
    assert "or routed at most 0.002500 ADA (0.5 % of the price) instead of 0.176149 ADA" in first
    assert "your first one costs 0.201149 ADA once" in first  # opening it, and the router's end
    known = said(answer, has_hop=True)
    assert "over your channel to the market's router" in known
    assert "your first one" not in known
    without_chain = said({**answer, "fees": None})
    assert "instead of" not in without_chain
    assert "costs 0.025000 ADA and the network's fee once" in without_chain
    assert "or routed not this job" in said({**answer, "routed": {**ROUTED, "carried": False}})
    assert "router" not in said({**answer, "routed": None})
