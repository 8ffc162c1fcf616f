"""The load of ``tally bench hub``, a process of its own: adapters that tick and payers that answer.

Real sockets, real signatures: one receipt and one voucher a second for each job. A tick counts once
its voucher has come back to the adapter: verified and durable twice on the way. Lines of JSON are
the talk with the bench. It says ``{"watch": [payer, seed]}`` for a channel, ``{"count": true}`` and
``{"count": false}``; this process says ``{"open": n}``, ``{"started": n}``, after the count what it
has counted, and ``{"failed": why}``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Final, cast

import anyio
import anyio.abc
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from marketplace.cli.embedded.child import die_with
from marketplace.cli.shared.refusals import first_tally_error
from marketplace.domain.errors import Fault, TallyError
from marketplace.domain.keys import Signer
from marketplace.domain.money.receipt import GENESIS, Receipt, SignedReceipt
from marketplace.domain.money.terms import SignedTerms, Terms
from marketplace.domain.money.voucher import Voucher
from marketplace.domain.protocol import codec, wire
from marketplace.domain.protocol.conversation import (
    Client,
    Numbering,
    Phase,
    Role,
    subscribe_message,
)
from marketplace.domain.site import origin_of
from marketplace.domain.supply.hardware import Cpu, HostHardware
from marketplace.domain.supply.offer import DEVNET_MAGIC, Offer, offer_id
from marketplace.domain.units import owed, unit_ms

PER_ADAPTER: Final = 20
TICK_S: Final = 1.0
PAUSE_TICKS: Final = 2
OPEN_WITHIN_S: Final = 60

Handler = Callable[[wire.Message], Awaitable[None]]


class LoadLost(Fault):
    """A part of the load ended before the figures were taken, so there are none."""

    code = "LOAD_LOST"
    remedy = (
        "the market did not keep up on this machine: try it when nothing else runs, or --jobs fewer"
    )


@dataclass
class Line:
    """One client's socket; it counts on a market that stays."""

    url: str
    role: Role
    signer: Signer
    handle: Handler
    client: Client = field(init=False)
    socket: ClientConnection | None = None
    open: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self.client = Client(
            self.role, self.signer, DEVNET_MAGIC, "bench", Numbering(os.urandom(16)),
            origin_of(self.url),
        )  # fmt: skip

    async def send(self, message: wire.Message) -> None:
        """Number it and write it."""
        assert self.socket is not None
        await self.socket.send(self.client.send(message))

    async def run(self) -> None:
        """Serve until cancelled; LoadLost when the socket does not last that long."""
        try:
            async with connect(
                self.url, max_size=codec.MAX_FRAME, open_timeout=OPEN_WITHIN_S, compression=None
            ) as socket:
                self.socket = socket
                await socket.send(self.client.connected())
                async for frame in socket:
                    await self._heard(socket, frame)
        except (WebSocketException, OSError) as error:
            raise LoadLost(f"the socket of a load's {self.role} was lost: {error}") from error
        raise LoadLost(f"the market closed the socket of a load's {self.role}")

    async def _heard(self, socket: ClientConnection, frame: str | bytes) -> None:
        assert isinstance(frame, bytes)
        answers, message = self.client.receive(frame)
        for answer in answers:
            await socket.send(answer)
        if self.client.phase is Phase.OPEN:
            self.open.set()
        if message is not None:
            await self.handle(message)
            await socket.send(self.client.handled())


@dataclass
class Counted:
    """What was seen while counting; round trips in ms from a receipt to its voucher. *late*:
    receipts that had none after two ticks, where an adapter pauses its lease.
    """

    round_trips: list[int] = field(default_factory=list[int])
    late: int = 0
    refused: list[str] = field(default_factory=list[str])


@dataclass
class Load:
    """What the adapters and payers share."""

    url: str
    say: Callable[[dict[str, Any]], None]
    tick_s: float = TICK_S
    counting: bool = False
    counted: Counted = field(default_factory=Counted)
    started: int = 0

    def note(self, message: wire.Message) -> None:
        """A refusal is a fault of the bench: it is shown."""
        if isinstance(message, wire.Rejected):
            self.counted.refused.append(f"{message.code}: {message.message}")

    def begun(self) -> None:
        """One more lease ticks."""
        self.started += 1
        self.say({"started": self.started})


class Adapter:
    """Accepts every proposal and ticks each lease, once a second unless told otherwise."""

    def __init__(self, load: Load, tasks: anyio.abc.TaskGroup) -> None:
        self.signer = Signer(os.urandom(32))
        self.line = Line(_socket(load.url, "provider"), "adapter", self.signer, self._heard)
        self._load, self._tasks = load, tasks
        self._terms: dict[str, Terms] = {}
        self._sent: dict[bytes, dict[int, float]] = {}  # by channel: due → when

    async def offer(self, leases: int, **more: Any) -> None:
        """List cores for *leases* jobs; *more* of the offer's fields."""
        vk, cores = self.signer.verify_key.hex(), leases + 1
        offer = Offer(
            id=offer_id(vk),
            provider=vk,
            magic=DEVNET_MAGIC,
            adapter_vkh=self.signer.key_hash,
            payout=bytes(28),
            payout_address="addr_test1vqqqqqqqq",
            host=HostHardware(
                host=vk[:8],
                cpu=Cpu("load", cores, cores * 1000),
                memory_mib=512 * cores,
                disk_mib=10_000 * cores,
                gpus=(),
                region="EU",
            ),
            gpu_rates={},
            core_rate=5_000_000,
            **more,
        )
        await self.line.send(wire.OfferPosted(offer, False))
        await self.line.send(wire.LeasesHeld([]))

    async def _heard(self, message: wire.Message) -> None:
        self._load.note(message)
        match message:
            case wire.LeaseProposed(lease, _, body):
                self._terms[lease] = Terms.decode(body)
                signed = SignedTerms(body, self.signer.sign(body))
                await self.line.send(wire.LeaseAccepted(lease, signed))
            case wire.LeaseSigned(lease):
                await self.line.send(wire.LeaseProgress(lease, "STARTED", 0, {}))
                self._tasks.start_soon(self._tick, self._terms[lease])
            case wire.VoucherSent(_, voucher):
                self._paid(voucher)
            case _:
                pass

    def _paid(self, voucher: Voucher) -> None:
        sent, counted = self._sent[voucher.session_vk], self._load.counted
        for due in [due for due in sent if due <= voucher.cumulative]:
            waited = anyio.current_time() - sent.pop(due)
            if self._load.counting:
                counted.round_trips.append(round(waited * 1000))
                counted.late += waited > PAUSE_TICKS * self._load.tick_s

    def overdue(self) -> int:
        """Receipts that wait for their voucher for too long."""
        latest = anyio.current_time() - PAUSE_TICKS * self._load.tick_s
        return sum(at < latest for sent in self._sent.values() for at in sent.values())

    async def _tick(self, terms: Terms) -> None:
        self._load.begun()
        deadline, last, begun = anyio.current_time(), GENESIS, 0
        for seq in itertools.count(1):
            deadline += self._load.tick_s
            await anyio.sleep_until(deadline)
            wall = round(seq * self._load.tick_s * 1000)
            units = unit_ms(wall, terms.units_milli)
            due = owed(units, terms.rate_micro)
            receipt = Receipt(
                terms.session_vk, terms.lease, seq, begun, wall, wall, terms.devices,
                terms.resource, units, due, due, (), bytes(32), last, False,
            )  # fmt: skip
            begun, last = wall, receipt.hash
            signed = SignedReceipt.sign(receipt, self.signer)
            self._sent.setdefault(terms.session_vk, {})[due] = anyio.current_time()
            await self.line.send(wire.ReceiptSent(terms.lease, signed))


class Payer:
    """Answers every receipt of its channels with a voucher."""

    def __init__(self, load: Load) -> None:
        self.line = Line(_socket(load.url, "payer"), "payer", Signer(os.urandom(32)), self._heard)
        self._load = load
        self._sessions: dict[bytes, Signer] = {}

    async def watch(self, session: Signer) -> None:
        """Pay on this channel from now on."""
        vk = session.verify_key
        self._sessions[vk] = session
        client = self.line.client
        proof = session.sign(subscribe_message(client.nonce, client.market, vk))
        await self.line.send(wire.Subscribe(vk, proof))

    async def _heard(self, message: wire.Message) -> None:
        self._load.note(message)
        match message:
            case wire.ReceiptSent(lease, signed):
                session = self._sessions[signed.receipt.session_vk]
                voucher = Voucher.sign(session, signed.receipt.channel_owed)
                await self.line.send(wire.VoucherSent(lease, voucher))
            case _:
                pass


def _socket(url: str, role: str) -> str:
    return url.replace("http", "ws", 1) + f"/v1/{role}"


async def _serve(url: str, count: int, tick_s: float) -> None:
    """*count* adapters and as many payers, until the bench is gone."""
    load = Load(url, _say, tick_s)
    async with anyio.create_task_group() as tasks:
        adapters = [Adapter(load, tasks) for _ in range(count)]
        payers = [Payer(load) for _ in range(count)]
        for line in [one.line for one in (*adapters, *payers)]:
            tasks.start_soon(line.run)
            await line.open.wait()  # one after the other: a crowd at the door is another bench
        for adapter in adapters:
            await adapter.offer(PER_ADAPTER)
        _say({"open": count})
        async for line in anyio.wrap_file(sys.stdin):
            told: dict[str, Any] = json.loads(line)
            if "watch" in told:
                payer, seed = cast("tuple[int, str]", told["watch"])
                await payers[payer].watch(Signer(bytes.fromhex(seed)))
            elif told["count"]:
                load.counted, load.counting = Counted(), True
            else:
                load.counting = False
                load.counted.late += sum(adapter.overdue() for adapter in adapters)
                _say({"counted": asdict(load.counted)})
        tasks.cancel_scope.cancel()


def _say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


def main(argv: list[str]) -> int:
    """The load's process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("count", type=int)
    parser.add_argument("parent", type=int)
    parser.add_argument("tick_s", type=float)
    options = parser.parse_args(argv)
    die_with(options.parent)
    try:
        anyio.run(_serve, options.url, options.count, options.tick_s)
    except TallyError as error:
        _say({"failed": error.message})
    except BaseExceptionGroup as group:
        first = first_tally_error(group)
        if first is None:
            raise
        _say({"failed": first.message})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
