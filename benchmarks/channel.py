"""``tally bench channel``: what every step costs, from real signed transactions that a ledger
accepted.

A devnet is started in this process with the parameters that mainnet had under protocol 10 and slots
as wide as mainnet's; every row is a transaction that was evaluated, signed, submitted and taken
into a block. Channels are at base addresses (with the consumer's stake part); payouts and the
settler's change are at enterprise ones. ``build_ms`` is the time from a frozen snapshot to signed
bytes, the evaluation over HTTP included; it depends on the machine, the other figures do not.

What the table must hold to, and how its page is written, is in ``channel_page.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

import anyio
import cbor2

from benchmarks import yardstick
from benchmarks.channel_page import DOCUMENT, SECTION, SIZES, gates, markdown
from marketplace.chain.actions.mint import mint_token
from marketplace.chain.actions.session import Desk, deploy, open_channels, pay
from marketplace.chain.build import plans
from marketplace.chain.build.plans import Batch, Move, Opening
from marketplace.chain.build.wallet import Wallet
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding import datum
from marketplace.chain.encoding.utxo import Utxo
from marketplace.chain.node.blockfrost import ChainReader, connect
from marketplace.chain.node.submit import MemoryLog, send
from marketplace.chain.settlement import fitting
from marketplace.chain.settlement.batched_ends import EndBatcher, OfferedEnd
from marketplace.chain.settlement.consent import Consent, Ending, Known, consent, to_resolve
from marketplace.chain.transaction.outputs import Out
from marketplace.chain.transaction.scripts import scripts_for
from marketplace.chain.transaction.snapshot import Units
from marketplace.domain.keys import Signer
from marketplace.domain.money.address import Credential
from marketplace.domain.money.channel import Close, Consts, Finish, TopUp
from marketplace.domain.money.voucher import Voucher

_ADA: Final = 1_000_000
_MAINNET_SLOT_MS: Final = 150_000_000_000  # so that slots take as many bytes as mainnet's do
_CLOCK_MS: Final = 1_800_000_000_000  # stands still, so that every run makes the same transactions
_ENOUGH: Final = {"claim": 52, "finish": 90, "together": 46, "top_up": 60, "close": 60}
_OPENED_AT_ONCE: Final = 45
STEPS: Final = ("claim", "finish", "together", "top_up", "close")
_WAITS_MS: Final = 600_000


def _key(name: str) -> Signer:
    return Signer(sha256(b"tally bench " + name.encode()).digest())


@dataclass
class _Channel:
    utxo: Utxo
    session: Signer
    provider: str
    adapter: Signer
    claimed: int = 0


@dataclass
class _Bench:
    """One devnet with one asset's channels on it."""

    chain: ChainReader
    devnet: Any
    asset: str = ""
    channels: list[_Channel] = field(default_factory=list[_Channel])
    opened: int = 0

    @property
    def unit(self) -> bytes:
        return bytes.fromhex(self.asset)

    @property
    def consumer(self) -> Wallet:
        return Wallet(_key("consumer"), False, _key("consumer stake").key_hash)

    @property
    def settler(self) -> Wallet:
        return Wallet(_key("settler"), False)

    def desk(self, wallet: Wallet) -> Desk:
        return Desk(self.chain, wallet, self.asset)

    def payout_address(self, provider: str) -> bytes:
        return addresses.key_address(_key(provider).key_hash, None, False)

    @property
    def payouts(self) -> dict[bytes, bytes]:
        every = {c.provider for c in self.channels}
        return {addresses.payout_hash(a): a for a in map(self.payout_address, every)}

    async def open(self, count: int, *, each: bool, own: bool = False) -> None:
        """*count* fresh channels, to one provider or to one each; each with an adapter's key of its
        *own*.
        """
        self.channels = []
        for start in range(0, count, _OPENED_AT_ONCE):
            await self._open(range(start, min(count, start + _OPENED_AT_ONCE)), each, own)
        self.channels.sort(key=lambda c: c.utxo.ref)

    async def _open(self, numbers: Iterable[int], each: bool, own: bool) -> None:
        made: list[tuple[Signer, str, Signer]] = []
        openings: list[Opening] = []
        for number in numbers:
            provider = f"provider {number}" if each else "provider"
            session = _key(f"session {self.opened}")
            adapter = _key(f"adapter {number}" if own else "adapter")
            self.opened += 1
            consts = Consts(
                session.verify_key,
                adapter.key_hash,
                addresses.payout_hash(self.payout_address(provider)),
                self.consumer.signer.key_hash,
                86_400_000,
                0,
            )
            stake = Credential(_key("consumer stake").key_hash)
            openings.append(Opening(40 * _ADA, lambda _r, _i, c=consts: c, stake))
            made.append((session, provider, adapter))
        done = await open_channels(self.desk(self.consumer), openings)
        for (session, provider, adapter), utxo in zip(made, done.sent.made, strict=False):
            self.channels.append(_Channel(utxo, session, provider, adapter))

    def batch(self, step: str, count: int) -> Batch:
        """*count* channels, in ledger order, taking *step*."""
        chosen = self.channels[:count]
        until_ms: int | None = None
        signers: tuple[bytes, ...] = ()
        if step in ("top_up", "close"):
            signers = (self.consumer.signer.key_hash,)
        if step == "finish":
            signers = (_key("adapter").key_hash,)
        if step == "close":
            until_ms = self.devnet.status()["now_ms"] + 300_000
        moves = tuple(Move(c.utxo, self._step(step, c)) for c in chosen)
        payouts = self.payouts if step in ("claim", "finish") else {}
        return Batch(moves, payouts, signers, until_ms=until_ms, unit=self.unit)

    def _step(self, step: str, channel: _Channel) -> Any:
        if step == "top_up":
            return TopUp(5 * _ADA)
        if step == "close":
            return Close()
        voucher = Voucher.sign(channel.session, channel.claimed + 2 * _ADA)
        claim = plans.claim_step(voucher)
        return claim if step == "claim" else Finish(claim)

    async def measure(
        self, step: str, count: int, providers: int, repeats: int = 1
    ) -> dict[str, Any]:
        """One row; the transaction is submitted and taken into a block."""
        by_consumer = step in ("top_up", "close")
        desk = self.desk(self.consumer if by_consumer else self.settler)
        keys = (_key("adapter"),) if step == "finish" else ()
        snapshot, funds, fresh = await desk.look()
        spent: list[float] = []
        signed = None
        for _ in range(repeats):
            begin = time.perf_counter()
            planned = plans.settle(snapshot, funds, self.batch(step, count))
            unsigned = await desk.finish(planned.draft, fresh)
            signed = unsigned.sign(desk.wallet.signer, *keys)
            spent.append((time.perf_counter() - begin) * 1000)
        assert signed is not None
        sent = await send(self.chain, MemoryLog(), signed, step)
        self._follow(step, count, sent.made)
        return {
            "step": step,
            "asset": "token" if self.asset else "ADA",
            "channels": count,
            "providers": providers,
            "bytes": signed.size,
            "mem": signed.units.mem,
            "steps": signed.units.steps,
            "fee": signed.fee,
            "build_ms": round(statistics.median(spent), 1),
        }

    async def measure_together(self, count: int) -> dict[str, Any]:
        """One row: each adapter, with a key of its own, checks the transaction against its own door
        and signs; as many of *count* as fit."""
        chosen = {f"adapter {n}": c for n, c in enumerate(self.channels[:count])}
        snapshot = await self.chain.snapshot(scripts_for(self.asset))
        until_ms = snapshot.tip.time_ms + _WAITS_MS
        vouchers = {name: Voucher.sign(c.session, 2 * _ADA) for name, c in chosen.items()}

        async def ask(name: str, tx: bytes) -> Consent | str:
            channel = chosen[name]
            outputs = [await self.chain.output(ref) for ref in to_resolve(tx)]
            resolved = {o.utxo.ref: o.utxo for o in outputs if o and o.spent_by is None}
            ending = Ending(channel.utxo, vouchers[name], 2 * _ADA)
            known = Known(
                channel.adapter.key_hash, {channel.utxo.ref: ending}, resolved, snapshot, self.unit
            )
            return consent(tx, known, channel.adapter)

        offers = [
            OfferedEnd(
                name, c.adapter.key_hash, c.session.verify_key, c.utxo.ref,
                plans.claim_step(vouchers[name]), self.payout_address(c.provider), until_ms,
            )
            for name, c in chosen.items()
        ]  # fmt: skip
        begin = time.perf_counter()
        done = await EndBatcher(self.desk(self.settler), share_most=_ADA).round(offers, ask)
        spent = (time.perf_counter() - begin) * 1000
        assert done.sent is not None and not done.left and not done.unfit
        gone, sent = {one.ref for one in done.ended}, done.sent.sent
        self.channels = [c for c in self.channels if c.utxo.ref not in gone]
        units = _units(sent.bytes)
        return {
            "step": "together",
            "asset": "token" if self.asset else "ADA",
            "channels": len(gone),
            "providers": len(gone),
            "bytes": sent.size,
            "mem": units.mem,
            "steps": units.steps,
            "fee": sent.fee,
            "build_ms": round(spent, 1),
        }

    def _follow(self, step: str, count: int, made: Sequence[Utxo]) -> None:
        """The channels as they are now: those at the stub's address, in order."""
        stub = scripts_for(self.asset).stub_hash
        going_on = [u for u in made if u.datum is not None and u.address[1:29] == stub]
        moved, rest = self.channels[:count], self.channels[count:]
        if step == "finish":
            self.channels = rest
            return
        for channel, utxo in zip(moved, going_on, strict=True):
            channel.utxo = utxo
            channel.claimed = datum.read_stage(utxo.datum or b"").claimed
        self.channels = sorted([*moved, *rest], key=lambda c: c.utxo.ref)

    async def most(self, step: str) -> int:
        """How many channels one transaction holds."""
        by_consumer = step in ("top_up", "close")
        desk = self.desk(self.consumer if by_consumer else self.settler)
        snapshot, funds, _ = await desk.look()
        return len(fitting.fit(snapshot, funds, self.batch(step, len(self.channels))).moves)


def _units(tx: bytes) -> Units:
    """What its redeemers say that it runs, together."""
    told: dict[Any, tuple[Any, tuple[int, int]]] = cbor2.loads(tx)[1][5]
    return sum((Units(*units) for _, units in told.values()), Units(0, 0))


async def _market(served: Any, asset_wanted: str) -> _Bench:
    """A fresh devnet with money, scripts and, for ``token``, a minted token on it."""
    served.devnet.advance(_MAINNET_SLOT_MS)
    chain = await connect(served.url)
    bench = _Bench(chain, served.devnet)
    for wallet, lovelace in ((bench.settler, 3_000 * _ADA), (bench.consumer, 30_000 * _ADA)):
        served.devnet.faucet(addresses.to_text(wallet.address), lovelace)
    if asset_wanted == "token":
        desk = bench.desk(bench.consumer)
        bench.asset = (await mint_token(desk, b"tUSD", 10**13, bench.consumer.address)).hex()
    await deploy(bench.desk(bench.settler))
    await pay(bench.desk(bench.consumer), [Out(bench.consumer.address, 5 * _ADA)])
    return bench


async def _rows(
    served: Any, asset: str, sizes: Sequence[int], steps: Sequence[str], maximum: bool, repeats: int
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    bench = await _market(served, asset)
    for step in steps:
        if step == "together":
            for size in () if asset == "token" else (n for n in sizes if n > 1):
                await bench.open(size, each=True, own=True)
                rows.append(await bench.measure_together(size))
            if maximum and asset != "token":
                await bench.open(_ENOUGH[step], each=True, own=True)
                rows.append(await bench.measure_together(_ENOUGH[step]))
            continue
        for each in (False, True) if step in ("claim", "finish") else (False,):
            most = max(sizes)
            if maximum:
                await bench.open(_ENOUGH[step], each=each)
                most = await bench.most(step)
                rows.append(await bench.measure(step, most, most if each else 1))
            for size in sizes:
                if size > most or (size == 1 and each):
                    continue  # more than a transaction holds, or the same as for one provider
                await bench.open(size, each=each)
                rows.append(await bench.measure(step, size, size if each else 1, repeats))
    return sorted(rows, key=lambda r: (STEPS.index(r["step"]), r["providers"] > 1, r["channels"]))


async def _building(served: Any, repeats: int) -> dict[str, float]:
    """Median milliseconds to build one claim, and one of 45 channels."""
    bench = await _market(served, "ADA")
    await bench.open(1, each=False)
    one = await bench.measure("claim", 1, 1, repeats)
    await bench.open(45, each=False)
    many = await bench.measure("claim", 45, 1, repeats)
    return {"claim_1_ms": one["build_ms"], "claim_45_ms": many["build_ms"]}


def run(
    *,
    sizes: Sequence[int] = SIZES,
    steps: Sequence[str] = STEPS,
    assets: Sequence[str] = ("ADA", "token"),
    maximum: bool = True,
    repeats: int = 1,
    building: int = 0,
) -> dict[str, Any]:
    """The table: ``{"scripts_bytes", "rows": [...]}``, and ``"building"`` medians of *building*
    runs.
    """

    from contracts.devnet.server import serve  # only this command and the tests run a ledger

    ada = scripts_for()
    rows: list[dict[str, Any]] = []
    for asset in assets:
        with serve(block_ms=0, clock=lambda: _CLOCK_MS) as served:
            rows += anyio.run(_rows, served, asset, sizes, steps, maximum, repeats)
    report: dict[str, Any] = {
        "scripts_bytes": len(ada.settle_cbor) + len(ada.stub_cbor),
        "rows": rows,
    }
    if building:
        with serve(block_ms=0, clock=lambda: _CLOCK_MS) as served:
            report["building"] = anyio.run(_building, served, building)
        machine = (
            f"{os.cpu_count()} cores",
            platform.machine(),
            f"Python {platform.python_version()}",
        )
        report["machine"] = ", ".join(machine)
    return report


def main(argv: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="tally bench channel", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the table as one JSON object")
    parser.add_argument("--markdown", action="store_true", help="rewrite docs/costs.md")
    parser.add_argument("--quick", action="store_true", help="ADA, one and ten channels")
    chosen = parser.parse_args(list(argv))
    report = (
        run(sizes=SIZES[:2], assets=("ADA",), maximum=False)
        if chosen.quick
        else run(repeats=3, building=20)
    )
    if chosen.markdown:
        _, mark, kept = DOCUMENT.read_text(encoding="utf-8").partition(SECTION)
        whole = f"{markdown(report)}\n{mark}{kept}" if mark else markdown(report)
        DOCUMENT.write_text(whole, encoding="utf-8")
    report["yardstick"] = yardstick.measure()
    if chosen.json:
        print(json.dumps(report))
    else:
        print(yardstick.said(report["yardstick"]))
        for name, value, bound, holds in gates(report):
            print(f"{'ok ' if holds else 'NO '} {name:42} {value:>12,.0f}   bound {bound:>12,.0f}")
        for r in report["rows"]:
            print(json.dumps(r))
    return 0 if all(holds for *_, holds in gates(report)) else 1
