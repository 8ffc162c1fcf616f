"""``tally bench matching``, the durable half: jobs posted, matched and committed per second.

A job counts once its row, its lease, its outbox message and its two events are committed
(SQLite: WAL with synchronous=FULL; PostgreSQL: fsync on) and the caller has its answer. Groups of
jobs share a transaction, as they do in a busy market.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import anyio

from marketplace.domain import canonical
from marketplace.domain.keys import Signer
from marketplace.domain.supply.hardware import Cpu, Gpu, HostHardware
from marketplace.domain.supply.offer import DEVNET_MAGIC, Offer, OfferState
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import GpuNeed, Policy, Price, Range, Resources
from marketplace.market.accounts.access import VERBS, Caller
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Account, OfferRecord
from marketplace.market.base.settings import Settings
from marketplace.market.context import Market
from marketplace.market.jobs import jobs
from marketplace.process.main import Config, running
from marketplace.system import settled_memory

HOSTS: Final = 1_213
PER_HOST: Final = 8
AT_ONCE: Final = 400
PURSE: Final = b"\x11" * 28


def run(jobs_each: int = 6_000, postgres_url: str = "") -> list[dict[str, Any]]:
    """``[{"store", "jobs_per_s", "jobs"}]``; PostgreSQL only where a URL or its binaries are."""
    rows: list[dict[str, Any]] = []
    folder = Path(tempfile.mkdtemp(prefix="tally-durable-"))
    try:
        rows.append(_row("sqlite", f"sqlite:///{folder}/market.db", folder, jobs_each))
        if postgres_url:
            rows.append(_row("postgresql", postgres_url, folder, jobs_each))
        elif _binaries() is not None:
            with throwaway_postgres() as url:
                rows.append(_row("postgresql", url, folder, jobs_each))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return rows


def _row(name: str, url: str, folder: Path, count: int) -> dict[str, Any]:
    rate, groups = anyio.run(_measure, url, folder / name, count)
    return {"store": name, "jobs_per_s": rate, "jobs": count, "jobs_per_commit": groups}


async def _measure(url: str, folder: Path, count: int) -> tuple[int, int]:
    # No adapter answers here: a proposal must not be given up while the clock runs.
    settings = Settings(
        propose_ttl_ms=3_600_000, process_lease_ms=3_600_000, quotes_new=count + AT_ONCE
    )
    async with running(Config(url, str(folder), settings=settings)) as run_:
        market = run_.market
        await _supply(market)
        who = Caller(PURSE.hex(), frozenset(VERBS))
        await market.store.apply(Change(puts=[Account(who.account, market.now)]))
        asked = [_asked(i) for i in reversed(range(count))]
        commits = run_.database.commits

        async def consumer() -> None:
            while asked:
                await jobs.post(market, who, asked.pop())

        with settled_memory():  # as `tally market serve` does once its offers are loaded
            start = time.perf_counter()
            async with anyio.create_task_group() as tasks:
                for _ in range(AT_ONCE):
                    tasks.start_soon(consumer)
            took = time.perf_counter() - start
        return round(count / took), round(count / max(run_.database.commits - commits, 1))


async def _supply(market: Market) -> None:
    gpus = tuple(Gpu(f"GPU-{i}", "NVIDIA T4", 16_384, i) for i in range(PER_HOST))
    for number in range(HOSTS):
        key = Signer(canonical.blake2b_256(number.to_bytes(4, "big")))
        host = HostHardware(f"h{number}", Cpu("EPYC", 128, 128_000), 1 << 20, 1 << 22, gpus)
        offer = Offer(
            id=f"offer_{number:026d}", provider=key.verify_key.hex(), magic=DEVNET_MAGIC,
            adapter_vkh=key.key_hash, payout=bytes(28), payout_address="",
            host=host, gpu_rates={"NVIDIA T4": 100_000_000 + number}, core_rate=5_000_000,
        )  # fmt: skip
        body, now = canonical.encode(offer.to_wire()), market.now
        record = OfferRecord(
            offer.id, offer.provider, OfferState.LISTED, body, now, now, market.process
        )
        await market.store.apply(Change(puts=[record]))
        market.directory.set_offer(record)


def _asked(number: int) -> jobs.Posting:
    share = (250, 500, 1000)[number % 3]
    spec = JobSpec(
        name=f"bench-{number}",
        image="sha256:" + "ab" * 32,
        command=("true",),
        resources=(Resources(Range(1000), Range(1024), Range(0), GpuNeed(share=share)),),
        price=Price(budget=50_000_000),
        policy=Policy(max_duration_ms=60_000),
    )
    return jobs.Posting(spec, os.urandom(32), PURSE)


def _binaries() -> Path | None:
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return folders[-1].parent if folders else None


@contextmanager
def throwaway_postgres() -> Generator[str]:
    """The URL of a fresh server (fsync on, Unix socket only); it is gone with the block."""
    binaries = _binaries()
    assert binaries is not None
    folder = Path(tempfile.mkdtemp(prefix="tally-bench-pg-"))
    user: dict[str, Any] = {}
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        entry = pwd.getpwnam("postgres")
        user = {"user": entry.pw_uid, "group": entry.pw_gid}
        os.chown(folder, entry.pw_uid, entry.pw_gid)

    def call(*command: str) -> None:
        subprocess.run(command, check=True, capture_output=True, timeout=120, cwd="/", **user)

    data, control = str(folder / "data"), str(binaries / "pg_ctl")
    options = f"-c listen_addresses='' -c unix_socket_directories={folder}"
    try:
        call(str(binaries / "initdb"), "-D", data, "-A", "trust", "-U", "tally")
        call(control, "-w", "-D", data, "-o", options, "-l", str(folder / "log"), "start")
        try:
            yield f"postgresql://tally@/postgres?host={folder}"
        finally:
            call(control, "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
