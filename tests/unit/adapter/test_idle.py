"""Why nothing runs, in words that stay true; and remedies that name what mends it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from adapter.config import Config, ConfigRefused, load
from adapter.core.state import State
from adapter.daemon.daemon import Daemon
from adapter.daemon.status import why_no_work
from adapter.doctor.findings import CODES
from adapter.host.keys import Keys
from adapter.main import MetricsPortTaken
from adapter.offering import payout_address
from tests.integration.support.adapter import host_offer


def idle(*, channels: dict[bytes, object] | None = None, up: bool = True) -> list[str]:
    """What an adapter without a lease says."""
    state = SimpleNamespace(
        leases={}, channels=channels or {}, past=SimpleNamespace(keys=()), unable="", draining=False
    )
    daemon = SimpleNamespace(
        state=cast(State, state), own=SimpleNamespace(offer=host_offer()),
        link=SimpleNamespace(up=up), now=lambda: SimpleNamespace(wall_ms=0),
    )  # fmt: skip
    return why_no_work(cast(Daemon, daemon))


def test_after_a_lease_nobody_is_told_that_nobody_asked() -> None:
    [before] = idle()
    assert before.startswith("nobody asked yet")
    [after] = idle(channels={b"c": object()})
    assert after.startswith("no job asks for it now")


def test_a_market_that_is_away_is_the_reason() -> None:
    assert idle(up=False) == ["the market cannot be reached, so nobody sees the offer"]


def test_a_remedy_names_the_key_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigRefused, match=r"^payout: "):
        payout_address(Config(payout="addr1nonsense"), cast(Keys, cast(Any, None)), 42)
    assert "metrics_port" in MetricsPortTaken("metrics_port 80: taken").remedy
    assert "--port" not in MetricsPortTaken("metrics_port 80: taken").remedy
    assert "[limits] images" in CODES["ALLOW_LIST_OPEN"][1]
    file = tmp_path / "adapter.toml"
    file.write_text("[images]\nallow = []\n")
    with pytest.raises(ConfigRefused, match="images"):
        load(file, {}, {})
