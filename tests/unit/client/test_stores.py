"""How an rclone of the owner's machine is led to a store of the market's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import anyio
import pytest

from marketplace import rclone
from marketplace.client.net.reading import AnswerUnreadable
from marketplace.client.sdk import stores
from marketplace.client.sdk.stores import RcloneMissing
from marketplace.domain.errors import Malformed
from marketplace.domain.work.cluster_store import key_of
from tests.unit.support.payer import CONSUMER

HERE, THERE = "http://127.0.0.1:8300/", "https://stores.example/"


@dataclass
class Place:
    """A market at *url* whose stores are at *at*."""

    url: str = "https://market.example"
    at: str = THERE
    asked: list[str] = field(default_factory=list[str])

    @property
    def http(self) -> Any:
        return self

    @property
    def purse(self) -> Any:
        return self

    signer = CONSUMER

    async def post(self, path: str, body: object) -> Any:
        self.asked.append(path)
        return {"name": "run-1", "url": self.at, "token": "owner.x.1.y", "expires_at_ms": 1}


def environment(place: Place, name: str = "run-1") -> dict[str, str]:
    return dict(anyio.run(stores.environment, cast(Any, place), name))


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch) -> None:
    def obscured(text: str) -> str:
        return f"obscured {text}"

    monkeypatch.setattr(rclone, "is_here", lambda: True)
    monkeypatch.setattr(rclone, "obscured", obscured)


def test_it_is_led_by_its_environment_to_what_the_purse_decrypts() -> None:
    place = Place()
    found, key = environment(place), key_of(CONSUMER.seed, "run-1")
    assert place.asked == ["/v1/stores/run-1/pass"]
    assert found["RCLONE_CONFIG_TALLY_SHELF_URL"] == THERE
    assert found["RCLONE_CONFIG_TALLY_SHELF_BEARER_TOKEN"] == "owner.x.1.y"
    assert found["RCLONE_CONFIG_STORE_PASSWORD"] == f"obscured {key[:32]}"
    assert all(one.startswith("RCLONE_") for one in found)
    assert (
        environment(Place("http://127.0.0.1:8000", HERE))["RCLONE_CONFIG_TALLY_SHELF_URL"] == HERE
    )


@pytest.mark.parametrize("at", [HERE, "http://stores.example/", "file:///etc", "https://a@b/"])
def test_a_market_that_is_reached_by_tls_leads_nobody_past_it(at: str) -> None:
    with pytest.raises(AnswerUnreadable):
        environment(Place(at=at))


@pytest.mark.parametrize("name", ["", "../keys", "a/b", "RUN", "a?b"])
def test_what_is_no_name_is_asked_for_nowhere(name: str) -> None:
    place = Place()
    with pytest.raises(Malformed):
        environment(place, name)
    assert not place.asked


def test_without_the_program_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rclone, "is_here", lambda: False)
    with pytest.raises(RcloneMissing) as refused:
        environment(Place())
    assert "rclone.org" in refused.value.remedy


def test_an_answer_without_a_token_is_refused() -> None:
    place = Place()

    async def post(path: str, body: object) -> Any:
        return {"url": THERE}

    cast(Any, place).post = post
    with pytest.raises(AnswerUnreadable):
        environment(place)
