"""What the owner's file and the host make of an offer to clusters."""

from __future__ import annotations

import pytest

from adapter.config import parse
from adapter.host.keys import Keys
from adapter.offering import make_offer, payout_address
from marketplace.domain.keys import Signer
from marketplace.domain.supply.hardware import Cpu, HostHardware
from marketplace.domain.supply.offer import DEVNET_MAGIC, Offer

KEYS = Keys(*(Signer(bytes([at]) * 32) for at in (1, 2, 3)))


def offered(limits: dict[str, object], *, mesh: bool) -> Offer:
    config, keys = parse({"limits": limits}), KEYS
    host = HostHardware("h1", Cpu("cpu", 8, 8000), 32_768, 100_000, ())
    payout = payout_address(config, keys, DEVNET_MAGIC)
    return make_offer(config, keys, DEVNET_MAGIC, payout, host, 0, 0, mesh)


@pytest.mark.parametrize(
    ("limits", "mesh", "says"),
    [
        ({}, False, (180_000, False)),
        ({}, True, (180_000, True)),
        ({"cluster_free": "10m"}, True, (600_000, True)),
        ({"cluster_free": "0s"}, True, (0, False)),
    ],
)
def test_an_offer_says_what_its_owner_bears_of_a_member_and_whether_it_joins_a_mesh(
    limits: dict[str, object], mesh: bool, says: tuple[int, bool]
) -> None:
    """Who takes no member has no mesh to offer."""
    offer = offered(limits, mesh=mesh)
    assert (offer.cluster_free_ms, offer.mesh) == says
