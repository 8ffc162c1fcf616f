"""The provider's screens: names, whole words, eighty columns, gross beside net."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from adapter.daemon.earnings import shares
from marketplace.cli.commands.adapter_screen import earnings_screen, status_screen

GPU = "GPU-f4449e2c-0000-0000-0000-000000000001"
SUM = {
    "transactions": 11,
    "claimed": 6_790,
    "fees": 2_382_770,
    "moved": 6_788_250,
    "net": -2_375_980,
}
LAST = {
    "tx": "ab" * 32, "at_ms": 1_800_000_000_000, "purpose": "finish", "claimed": 617,
    "fee": 224_352, "moved": 969_750, "net": -223_735,
}  # fmt: skip
REPORT: dict[str, Any] = {
    "provider": "cd" * 32,
    "market": {"url": "http://127.0.0.1:8000", "connected": False},
    "leases": [
        {
            "id": "lease_01MABCDEFGHJKMNPQRSTVWXYZ9", "state": "ACTIVE", "pause": None,
            "devices": [GPU], "rate": "1300 lovelace a GPU-second", "utilisation": "▁" * 60,
            "owed": 6_790, "ceiling": 5_000_000,
        }
    ],
    "devices": [
        {
            "uuid": GPU, "model": "SIMULATED NVIDIA L4", "health": "ok", "note": "",
            "rate": "150 lovelace a GPU-second", "simulated": True,
            "lease": "lease_01MABCDEFGHJKMNPQRSTVWXYZ9",
        }
    ],
    "core_rate": "4 lovelace a core-second",
    "earned": 6_790, "claimed": 6_790, "unclaimed": 0,
    "why_no_work": [], "alarms": [],
    "fees": {
        "address": "addr_test1vq", "lovelace": 1_500_000, "end_cost": 237_000, "enough_for": 0,
        "low": True, "fund": "tally faucet addr_test1vq '20 ADA'",
    },
    "money": {"total": SUM, "days": [], "last": LAST, "next": ["0.1 ADA of channel ab: claimed now"]},
}  # fmt: skip


def shown(picture: object, width: int) -> list[str]:
    """The lines of a terminal that wide."""
    file = io.StringIO()
    Console(file=file, width=width, soft_wrap=False, force_terminal=False).print(picture)
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 200])
def test_a_lease_is_one_line_and_its_device_has_its_name(width: int) -> None:
    lines = shown(status_screen(REPORT, width), width)
    [lease] = [line for line in lines if "TVWXYZ9" in line and "ACTIVE" in line]
    assert len(lease) <= width and "…" not in lease and "0.006790 ADA" in lease
    assert GPU not in "\n".join(lines)
    assert any("SIMULATED NVIDIA L4" in line for line in lines)
    assert ("▁" in lease) is (width == 200)  # what is left out first


def test_a_relay_has_a_line_with_what_the_market_says() -> None:
    [lease] = REPORT["leases"]
    market = {"at_ms": 5, "standing": "LAGGING", "why": "its tip is 400 s old"}
    for off, seen, line in (
        (None, None, "relay VWXYZ9: at its tip"),
        ("not_a_relay", None, "relay VWXYZ9: not billed: not a relay"),
        (
            None,
            market,
            "relay VWXYZ9: at its tip; the market sees it lagging (its tip is 400 s old)",
        ),
    ):
        relay = {"off_tip": off, "market": seen}
        found = {**REPORT, "leases": [{**lease, "relay": relay}]}
        shown_lines = [one.strip() for one in shown(status_screen(found, 200), 200)]
        assert line.replace("VWXYZ9", lease["id"][-8:]) in shown_lines, shown_lines


def test_without_a_lease_no_empty_table_is_drawn() -> None:
    lines = shown(status_screen({**REPORT, "leases": []}, 80), 80)
    assert "Leases: none" in lines and not any("last minute" in line for line in lines)


def test_a_loss_is_shown_as_one_beside_what_was_earned() -> None:
    text = " ".join(shown(status_screen(REPORT, 200), 200))
    assert "earned 0.006790 ADA" in text
    assert "net -2.375980 ADA = 0.006790 ADA claimed − 2.382770 ADA fees" in text
    assert "6.788250 ADA of the fee key's own went to the payout" in text
    assert "ab" * 32 in text and "next: 0.1 ADA" in text
    assert "enough for 0 more ends" in text and "tally faucet addr_test1vq '20 ADA'" in text
    assert "you are not listed" in text


def test_the_collateral_is_said_beside_what_may_be_spent() -> None:
    fees = {**REPORT["fees"], "lovelace": 13_801_856, "collateral": 5_000_000, "enough_for": 10}
    text = " ".join(shown(status_screen({**REPORT, "fees": fees}, 200), 200))
    assert "holds 13.801856 ADA beside 5.000000 ADA of collateral: enough for 10 more" in text


@pytest.mark.parametrize("width", [80, 100])
def test_earnings_fit_and_name_each_transaction_whole(width: int) -> None:
    lease = {
        "lease": "lease_01MABCDEFGHJKMNPQRSTVWXYZ9", "job": "job_1", "state": "COMPLETED",
        "channel": "ab" * 32, "owed": 6_790, "cost": 224_352, "net": -217_562, "ended": True,
    }  # fmt: skip
    found = {**REPORT["money"], "leases": [lease], "payments": [LAST]}
    lines = shown(earnings_screen(found, width), width)
    assert any("ab" * 32 in line for line in lines)
    assert not any("…" in line for line in lines)
    assert any(line.startswith("all") and "-2.375980 ADA" in line for line in lines)
    assert any("TVWXYZ9" in line and "-0.217562 ADA" in line for line in lines)


def test_a_routers_hop_is_one_line_and_its_leases_say_that_it_is_open() -> None:
    hop = {"owner": "ef" * 28, "leases": 3, "reserved": 2_000_000, "forked": True}
    channel = {"id": "ab" * 32, "capacity": 30_000_000, "unclaimed": 1_250_000, "hop": hop}
    direct = {**channel, "hop": None}
    text = " ".join(shown(status_screen({**REPORT, "channels": [channel, direct]}, 200), 200))
    assert text.count("of router") == 1 and "hop abababab of router efefefef: 3 leases" in text
    assert "2.000000 ADA of 30.000000 ADA kept for them, 1.250000 ADA unclaimed, FORKED" in text
    lease = {
        "lease": "lease_1", "job": "job_1", "state": "COMPLETED", "channel": "ab" * 32,
        "routed": True, "owed": 6_790, "cost": 0, "net": 6_790, "ended": False,
    }  # fmt: skip
    found = {**REPORT["money"], "leases": [lease], "payments": [LAST]}
    assert "its router's hop is open" in " ".join(shown(earnings_screen(found, 200), 200))


@pytest.mark.parametrize(
    ("whole", "weights"), [(224_352, [1, 1, 1]), (7, [0, 0]), (10, [3, 0, 9]), (0, [5]), (9, [])]
)
def test_the_parts_of_a_cost_are_the_whole(whole: int, weights: list[int]) -> None:
    parts = shares(whole, weights)
    assert len(parts) == len(weights) and (sum(parts) == whole or not weights)
    assert all(part >= 0 for part in parts)
