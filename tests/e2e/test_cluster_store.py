"""What a cluster's members leave in their store outlives them: one whose provider dies is replaced by
one that reads it, and what its old program still writes is refused; a later cluster of the same
purse goes on from it, and nobody else finds it. Its owner reads and writes it by ``tally store``,
and removes it. By a job file, of real adapters.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Final

import anyio
import pytest
import yaml

from adapter.runtime.stores.mounts import place_of
from marketplace.client.sdk.market import Job, Market
from marketplace.domain.money.keep import AT_ONCE
from tests.e2e.support.clusters import SOON_S, Processes, Watched, shown, ticked, world
from tests.e2e.support.embedded import PURSE, tally, until_true
from tests.requires import need_bubblewrap, need_devnet, need_stores

pytestmark = [pytest.mark.prove, pytest.mark.timeout(240)]
WORK: Final = """
import os, sys, time
store, own = os.environ["TALLY_STORE"], "m" + os.environ["TALLY_MEMBER"]
lease, secrets = os.environ["TALLY_LEASE"], [one for one in os.environ if one.startswith("STORE_")]
def read(name):
    with open(os.path.join(store, name)) as file:
        return file.read().split()
found = {name: read(name) for name in sorted(os.listdir(store)) if name.endswith(".now")}
step = max([int(one[1]) for one in found.values()], default=0)
with open("began", "w") as file:
    print(step, *secrets, file=file)
while not os.path.exists("done"):
    step += 1
    draft, place = os.path.join(store, own + ".new"), os.path.join(store, own + ".now")
    try:
        with open(draft, "w") as file:
            print(lease, step, file=file)
        os.replace(draft, place)
        state = "wrote %d" % step
    except OSError as error:
        state = "refused %s" % error
    with open("state", "w") as file:
        file.write(state)
    time.sleep(0.2)
"""


def job_file(folder: Path, name: str, members: int = 3) -> Path:
    said = {
        "version": 1,
        "name": name,
        "command": ["python3", "-c", WORK],
        "cluster": {
            "members": members,
            "network": "none",
            "spread": True,
            "store": {"name": "run-1"},
        },
        "placement": {"isolation": "process"},
        "resources": {"cpu": 0.25, "memory": "128MB"},
        "price": {"budget": f"{5 * members} ADA"},
        "policy": {"max_duration": "10m", "retry": {"on": ["provider_lost"], "max": 2}},
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(said))
    return path


async def began(job: Job) -> int:
    """The step that it found; the secrets of its store are its host's alone."""

    async def told() -> list[str]:
        return (await shown(job, "began")).split()

    step, *secrets = await until_true(told, f"{job.id} to begin", SOON_S)
    assert not secrets
    return int(step)


async def written(job: Job) -> int:
    """The newest step of its own that it knows to be at the store."""

    async def told() -> int:
        word, _, step = (await shown(job, "state")).partition(" ")
        return int(step) if word == "wrote" else 0

    return await until_true(told, f"{job.id} to write", SOON_S)


def own_state(home: Path, adapter: str, lease: str) -> str:
    """What the program of a lease says on its host, whoever still hears it."""
    place = home / adapter / "runtime" / "workspaces" / lease / "state"
    return place.read_text() if place.exists() else ""


async def told(made: Processes, market: Market, folder: Path) -> None:
    one = Watched(await market.run_gang(job_file(folder, "first")))
    await one.until_said("running")
    jobs = one.gang.members
    first = min([await began(job) for job in jobs])
    assert first == 0, "nothing is there before anybody wrote"
    await ticked(market, jobs, 2)
    lost = jobs[0]
    dies, lease = await made.host(lost), str((await lost.refresh())["lease"])
    step = await written(lost)
    made.signal(dies, signal.SIGKILL)

    async def elsewhere() -> bool:
        return (await lost.refresh())["lease"] not in ("", lease)

    await until_true(elsewhere, "another place", SOON_S)

    async def refused() -> bool:
        return own_state(made.home, dies, lease).startswith("refused")

    await until_true(refused, "the lost member's program to be refused", SOON_S)

    async def again() -> bool:
        return one.said.count("running") == 2

    await until_true(again, f"all of it again: {one.said}", SOON_S)
    assert await began(lost) >= step, "the replacement goes on from what the lost one wrote"
    newest = [await written(job) for job in jobs]
    await one.gang.stop()
    with anyio.fail_after(SOON_S):
        await one.gang.wait()

    second = Watched(await market.run_gang(job_file(folder, "second", members=2)))
    await second.until_said("running")
    assert min([await began(job) for job in second.gang.members]) >= max(newest)

    await handled(made, max(newest))
    async with Market(
        made.market_url, wallet=await made.consumer(PURSE, "other"), chain_url=made.chain_url,
        keep=AT_ONCE,
    ) as other:  # fmt: skip
        third = Watched(await other.run_gang(job_file(folder, "third", members=2)))
        await third.until_said("running")
        first = min([await began(job) for job in third.gang.members])
        assert first == 0, "the name is each one's own"
        await third.finish()
    await second.finish()
    for path in (made.home / "market" / "stores").rglob("*"):
        assert ".now" not in path.name and (
            path.is_dir() or lease.encode() not in path.read_bytes()
        )
    left = [place for place in places(made.home) if dies not in place]

    async def gone() -> bool:
        table = await anyio.Path("/proc/self/mountinfo").read_text()
        return not any(place_of(Path(place)).name in table for place in left)

    await until_true(gone, "all mounts to be gone", SOON_S)
    await removed(made)


async def handled(made: Processes, step: int) -> None:
    """By its owner, while a cluster uses it: it says what is there, shows it, takes more of it, and
    does not go.
    """
    mine, other = (
        {"TALLY_HOME": str(made.home / "consumer")},
        {"TALLY_HOME": str(made.home / "other")},
    )
    at = ("--market", made.market_url)
    await made.consumer(PURSE, "other")
    listed = await tally("store", "list", *at, "--json", env=mine)
    (one,) = json.loads("".join(listed.out))
    assert one["name"] == "run-1" and one["bytes"] > 0 and one["entries"] >= 3
    read = await tally("store", "rclone", "run-1", *at, "--", "cat", "store:m0.now", env=mine)
    assert read.process.returncode == 0, read
    assert int("".join(read.out).split()[1]) >= step
    draft = made.home / "more"
    draft.write_text("from another machine")
    more = ("--", "copyto", str(draft), "store:more")
    assert (await tally("store", "rclone", "run-1", *at, *more, env=mine)).process.returncode == 0
    assert "STORE_IN_USE" in str(await tally("store", "remove", "run-1", *at, "--yes", env=mine))
    assert json.loads("".join((await tally("store", "list", *at, "--json", env=other)).out)) == []
    refused = await tally("store", "rclone", "run-1", *at, "--", "lsf", "store:", env=other)
    assert "NOT_FOUND" in str(refused), "a name is each one's own"


async def removed(made: Processes) -> None:
    """Once no cluster uses it: what its owner put there was there until then."""
    mine, at = {"TALLY_HOME": str(made.home / "consumer")}, ("--market", made.market_url)
    draft, again = made.home / "more", made.home / "again"
    copy = ("--", "copy", "store:more", str(again))
    for words in ("from its owner", "From its owner"):  # equally long: its size alone tells nothing
        draft.write_text(words)
        for more in (("--", "copyto", str(draft), "store:more"), copy):
            done = await tally("store", "rclone", "run-1", *at, *more, env=mine)
            assert done.process.returncode == 0, done
        assert (again / "more").read_text() == words
    beside = ("--", "copyto", "store:more", "store:beside")  # the server itself copies nothing
    assert (await tally("store", "rclone", "run-1", *at, *beside, env=mine)).process.returncode == 0
    none = await tally("store", "rclone", "run-1", *at, "--", "cat", "store:none", env=mine)
    assert none.process.returncode in (3, 4), "as rclone says that there is none"

    async def goes() -> bool:
        said = await tally("store", "remove", "run-1", *at, "--yes", env=mine)
        assert said.process.returncode == 0 or "STORE_IN_USE" in str(said), said
        return said.process.returncode == 0

    await until_true(goes, "the store to be nobody's", SOON_S)
    assert json.loads("".join((await tally("store", "list", *at, "--json", env=mine)).out)) == []


def places(home: Path) -> list[str]:
    """The adapters' own state."""
    return [str(path) for path in home.glob("adapter*/runtime")]


def test_what_members_left_is_read_by_a_replacement_and_by_a_later_cluster(tmp_path: Path) -> None:
    need_bubblewrap()
    need_devnet()
    need_stores()

    async def main() -> None:
        async with world(tmp_path) as (made, market):
            with anyio.fail_after(200):
                await told(made, market, tmp_path)

    anyio.run(main)
    rows = Path("/proc/self/mountinfo").read_text()
    for place in places(tmp_path / "up"):
        assert place_of(Path(place)).name not in rows, "an embedded market leaves no mount"
