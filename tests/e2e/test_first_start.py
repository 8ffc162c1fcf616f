"""The bench of a first start, in short: at a public network's pace a new consumer's job runs long
before a block holds its channel, and without an allowance it does not.
"""

from __future__ import annotations

import pytest

from benchmarks import first_routed, first_start
from tests.requires import need_bubblewrap, need_devnet

pytestmark = [pytest.mark.nightly, pytest.mark.alone, pytest.mark.timeout(840)]


def test_a_new_consumer_starts_before_its_block_and_without_an_allowance_with_it() -> None:
    need_bubblewrap()
    need_devnet()
    found = first_start.run(runs=3, beside=1)
    young, waiting = found["allowance"], found["block"]
    assert young["waited"] == [] and waiting["waited"] == [], found
    # The index shows no block before it is 20 s old: what began sooner had none.
    assert max(young["runs"]) < 20_000 <= min(waiting["runs"]), found


def test_a_provider_that_was_never_seen_is_paid_over_the_hop_without_a_transaction() -> None:
    """Nor does the router make one; no block is waited for."""
    need_bubblewrap()
    need_devnet()
    found = first_routed.run(runs=2)["routed"]
    assert found["transactions"] == {"consumers": 0, "router": 0}, found
    assert max(found["runs"]) < 20_000, found
