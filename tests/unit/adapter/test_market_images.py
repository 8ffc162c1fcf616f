"""Which images are of the market's own registry, and what is signed for whom."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from adapter.core.registries import is_of, refused
from adapter.core.workload import RuntimeFault
from adapter.runtime.docker.market_images import MarketImages
from marketplace.domain.work.image_access import PULL_MS, SignedPull
from tests.fakes import seed

DIGEST = "@sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("market", "registry", "is_its"),
    [
        ("https://market.example", "market.example", True),
        ("https://market.example", "market.example:5000", True),
        ("wss://market.example/x", "images.market.example", True),
        ("https://market.example", "evil-market.example", False),
        ("https://a.market.example", "market.example", False),
        ("https://market.example", "127.0.0.1:5000", False),
        ("https://market.example", "localhost:5000", False),
        ("https://market.example", "169.254.169.254", False),
        ("https://10.0.0.5", "10.0.0.5:5000", True),
        ("https://10.0.0.5", "1.10.0.0.5", False),
        ("http://127.0.0.1:8000", "127.0.0.1:5000", True),
        ("http://localhost:8000", "127.0.0.1:5000", True),
        ("http://127.0.0.1:8000", "images.example", False),
        ("", "", False),
    ],
)
def test_a_market_leads_a_daemon_to_no_other_host_than_its_own(
    market: str, registry: str, is_its: bool
) -> None:
    assert is_of(market, registry) is is_its
    if registry:
        assert (refused(f"{registry}/a/b{DIGEST}", (), market) == "") is is_its


def test_the_owners_list_goes_before_the_markets_word() -> None:
    image = f"images.market.example/a/b{DIGEST}"
    assert refused(image, ("docker.io/",), "https://market.example")
    assert not refused(image, ("images.market.example/",), "https://market.example")


class Asked:
    """A market that says *said*, and counts how often it is asked."""

    def __init__(self, said: Any, status: int = 200) -> None:
        self.said, self.status, self.times = said, status, 0

    def __call__(self, url: str, timeout: float) -> httpx.Response:
        assert url == "https://market.example/v1/registry"
        self.times += 1
        return httpx.Response(self.status, json=self.said)


def images(asked: Asked) -> MarketImages:
    return MarketImages("wss://market.example", seed("p"), lambda: 1_000_000, asked)


def test_a_pull_is_signed_for_this_lease_and_this_repository() -> None:
    asked = Asked({"name": "images.market.example"})
    market = images(asked)
    login = market.login(f"images.market.example/abc/train{DIGEST}", "lease_1")
    assert login is not None and login.user == "lease" and login.password not in repr(login)
    pull = SignedPull.read(login.password, "images.market.example", "abc/train")
    assert pull.by(seed("p").verify_key)
    assert (pull.lease, pull.until_ms) == ("lease_1", 1_000_000 + PULL_MS)
    market.login(f"images.market.example/abc/other{DIGEST}", "lease_2")
    assert asked.times == 1, "the name is kept for a while"


@pytest.mark.parametrize(
    "image",
    ["docker.io/library/python" + DIGEST, "python" + DIGEST, "sha256:" + "ab" * 32,
     "other.example/a" + DIGEST],
)  # fmt: skip
def test_other_registries_are_told_nothing_and_the_market_is_not_asked(image: str) -> None:
    asked = Asked({"name": "images.market.example"})
    assert images(asked).login(image, "lease_1") is None
    assert asked.times == 0


def test_a_market_without_a_registry_has_no_images() -> None:
    for asked in (Asked({"code": "NO_REGISTRY"}, 422), Asked({"name": "market.example:1"})):
        assert images(asked).login(f"market.example/abc/x{DIGEST}", "lease_1") is None


@pytest.mark.parametrize("asked", [Asked({}, 503), Asked([])])
def test_a_market_that_cannot_say_it_is_asked_again(asked: Asked) -> None:
    market = images(asked)
    for _ in range(2):
        with pytest.raises(RuntimeFault):
            market.login(f"market.example/abc/x{DIGEST}", "lease_1")
    assert asked.times == 2
