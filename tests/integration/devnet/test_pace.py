"""The devnet at a public network's pace: lottery, forks, an index behind, a limit of requests."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import anyio
import httpx
import pytest

from contracts.devnet import Devnet, DevnetRefusal, Served, serve
from contracts.devnet.face import limit
from contracts.devnet.pace import PREPROD, Bucket, Pace
from marketplace.chain.node.blockfrost import connect
from tests.integration.devnet.test_chain import NEVER, assert_conserved, held
from tests.integration.support.devnet import ADA, FrozenClock, Party
from tests.requires import need_devnet

ALICE = Party("alice")
BEHIND = Pace(NEVER, "behind", lag_ms=20_000)


@pytest.fixture(autouse=True)
def _ledger_there() -> None:
    need_devnet()


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def devnet(clock: FrozenClock) -> Iterator[Devnet]:
    with Devnet(clock=clock, block_ms=NEVER) as one:
        yield one


def test_blocks_come_by_lottery_every_twenty_seconds_in_the_mean() -> None:
    dice = random.Random(1)
    waits = [PREPROD.next_block_ms(dice) for _ in range(20_000)]
    assert all(wait % 1000 == 0 and wait >= 1000 for wait in waits)
    assert 19_500 < statistics.fmean(waits) < 20_500
    late = sum(wait > 60_000 for wait in waits) / len(waits)
    assert 0.04 < late < 0.055  # 0.95 ** 60 = 4.6 %
    assert {Pace(700).next_block_ms(dice) for _ in range(100)} == {700}


def test_forks_come_as_often_as_the_pace_says() -> None:
    dice = random.Random(2)
    forks = sum(PREPROD.forks(dice) for _ in range(30_000))
    assert 900 < forks < 1100
    assert not any(Pace(1000).forks(dice) for _ in range(1000))


def test_the_index_shows_what_was_there_twenty_seconds_ago(
    devnet: Devnet, clock: FrozenClock
) -> None:
    devnet.set_pace(BEHIND)
    paid = devnet.faucet(ALICE.address, 5 * ADA)
    devnet.mint()
    assert [held(devnet, ALICE), devnet.waiting()] == [0, []]  # in a block, and not shown yet
    clock.now += 19_000
    assert held(devnet, ALICE) == 0
    clock.now += 1_000
    assert held(devnet, ALICE) == 5 * ADA
    devnet.set_pace(None)
    devnet.rollback(1)
    assert [one.id for one in devnet.waiting()] == [paid.tx]


def test_after_a_fork_what_was_in_it_waits_and_the_chain_is_no_shorter(devnet: Devnet) -> None:
    devnet.mint(5)
    paid = devnet.faucet(ALICE.address, 5 * ADA)
    before = devnet.mint()
    taken = devnet.fork(3)
    after = devnet.status()
    assert taken == [paid.tx] == after["mempool"]
    assert after["height"] == before.height and after["hash"] != before.hash
    assert held(devnet, ALICE) == 0
    devnet.mint()
    assert held(devnet, ALICE) == 5 * ADA
    assert_conserved(devnet)


def test_a_pace_is_set_and_taken_back(devnet: Devnet) -> None:
    devnet.set_pace(PREPROD)
    assert [devnet.status()[key] for key in ("pace", "block_ms")] == ["preprod", 20_000]
    devnet.set_pace(None)
    assert [devnet.status()[key] for key in ("pace", "block_ms")] == ["devnet", NEVER]
    with Devnet() as each, pytest.raises(DevnetRefusal):
        each.set_pace(PREPROD)


def test_blocks_and_forks_come_by_themselves() -> None:
    """A fork before each block: the chain grows all the same, and nothing is lost."""
    with serve(block_ms=NEVER) as served:
        devnet = served.devnet
        devnet.mint(5)
        devnet.faucet(ALICE.address, 5 * ADA)
        devnet.set_pace(Pace(20, "wild", fork_chance=1.0, fork_blocks=3))
        with httpx.Client(base_url=served.control, timeout=10) as client:

            def status() -> dict[str, Any]:
                return client.get("/status").json()

            while status()["height"] < 15:
                pass
            assert status()["rollbacks"] >= 5
        devnet.set_pace(None)
        devnet.mint()
        assert held(devnet, ALICE) == 5 * ADA
        assert_conserved(devnet)


def test_a_project_that_asks_too_much_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As at Blockfrost: 429 by project, and the controls are for whoever runs the devnet."""
    # No second passes between its questions, however slow this machine is.
    monkeypatch.setattr(limit, "Bucket", lambda pace, _seconds: Bucket(pace, lambda: 0.0))
    few = replace(PREPROD, block_ms=NEVER, lottery=False, burst=3, requests_a_second=1)
    with serve(block_ms=NEVER) as served, httpx.Client() as client:
        served.devnet.set_pace(few)

        def asked(project: str) -> httpx.Response:
            return client.get(f"{served.url}/genesis", headers={"project_id": project})

        answers = [asked("one") for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert answers[-1].json() == {
            "status_code": 429, "error": "Project Over Limit", "message": "Usage is over limit.",
        }  # fmt: skip
        assert asked("another").status_code == 200
        assert client.get(f"{served.control}/status").status_code == 200


def test_a_limit_gives_again_with_time() -> None:
    now = [0.0]
    bucket = Bucket(replace(PREPROD, burst=2, requests_a_second=10), lambda: now[0])
    assert [bucket.take() for _ in range(3)] == [True, True, False]
    now[0] += 0.1
    assert [bucket.take() for _ in range(2)] == [True, False]
    now[0] += 3600
    assert [bucket.take() for _ in range(3)] == [True, True, False]  # no more than the burst


def test_a_reader_over_the_limit_asks_again_and_is_answered() -> None:
    """A burst of one project's programs is no fault of the chain's."""
    few = replace(PREPROD, block_ms=NEVER, lottery=False, burst=8, requests_a_second=4, lag_ms=0)

    async def run(served: Served) -> int:
        reader = await connect(served.base_url)
        served.devnet.set_pace(few)
        async with anyio.create_task_group() as tasks:
            for _ in range(12):
                tasks.start_soon(reader.tip)
        return reader.requests

    with serve(block_ms=NEVER) as served:
        assert anyio.run(run, served) >= 12
