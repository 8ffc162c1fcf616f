"""A relay is read over real sockets: another implementation of node-to-node as the peer, and peers
that are silent, slow, lying, or no relay at all; each is told apart.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import cbor2
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from marketplace.chain.node.relay import Relay, tcp
from marketplace.chain.node.relays_apart import Together
from marketplace.domain.ouroboros.mux import Protocol, Segments
from marketplace.domain.ouroboros.reading import NETWORKS, SKEW_MS, Standing
from marketplace.system import SystemClock
from tests.requires import need_node

PEER = Path(__file__).parents[2] / "ouroboros"
PREPROD = NETWORKS["preprod"]
NOW = PREPROD.clock.when(100_000_000)
LAG_MS = 60_000


@dataclass(frozen=True)
class Block:
    """One of a chain that this test makes."""

    slot: int
    number: int
    salt: str = ""

    @property
    def header(self) -> bytes:
        return cbor2.dumps([self.number, self.slot, self.salt])

    @property
    def hash(self) -> bytes:
        return hashlib.blake2b(self.header, digest_size=32).digest()

    def told(self) -> str:
        made = {
            "slot": self.slot,
            "block": self.number,
            "header": self.header.hex(),
            "hash": self.hash.hex(),
        }
        return json.dumps(made)


class Peer:
    """The other implementation's relay."""

    def __init__(self, process: anyio.abc.Process) -> None:
        assert process.stdout is not None and process.stdin is not None
        self._lines = BufferedByteReceiveStream(process.stdout)
        self._told = process.stdin
        self.port = 0

    async def said(self) -> str:
        return (await self._lines.receive_until(b"\n", 1000)).decode()

    async def _tell(self, line: str) -> None:
        await self._told.send(f"{line}\n".encode())
        while not (await self.said()).startswith("has"):
            pass

    async def add(self, *blocks: Block) -> None:
        for one in blocks:
            await self._tell(one.told())

    async def back(self, slot: int) -> None:
        await self._tell(json.dumps({"back": slot}))


@asynccontextmanager
async def peer(magic: int = 1) -> AsyncGenerator[Peer]:
    need_node()
    process = await anyio.open_process(["node", "peer.mjs", str(magic)], cwd=PEER, stderr=None)
    try:
        made = Peer(process)
        made.port = int((await made.said()).split()[1])
        yield made
    finally:
        with anyio.CancelScope(shield=True):
            process.kill()
            await process.wait()
            await process.aclose()


def relay(port: int, **more: Any) -> Relay:
    return Relay(tcp("127.0.0.1", port), PREPROD, LAG_MS, **{"within_s": 60.0, **more})


def test_a_relay_is_followed_forward_and_back() -> None:
    async def run() -> None:
        at = PREPROD.clock.at(NOW)
        blocks = [Block(at - 100 + 20 * n, 1000 + n) for n in range(5)]
        async with peer() as other:
            await other.add(*blocks)
            async with relay(other.port) as asked:
                found = await asked.look(NOW)
                assert (found.standing, found.version, found.why) == (Standing.AT_TIP, 14, "")
                assert found.tip is not None
                assert (found.tip.point.slot, found.tip.block) == (blocks[-1].slot, 1004)
                assert found.tip.point.hash == blocks[-1].hash
                more = Block(at - 5, 1005)
                await other.add(more)
                found = await asked.look(NOW)
                assert found.tip is not None and found.tip.point.hash == more.hash
                assert found.standing is Standing.AT_TIP
                await other.back(blocks[3].slot)  # a fork: two blocks are gone, another comes
                fork = Block(at - 3, 1004, "another")
                await other.add(fork)
                await asked.look(NOW)  # hears of the way back, and asks what comes after it
                found = await asked.look(NOW)
                assert found.tip is not None and found.tip.point.hash == fork.hash
                assert found.standing is Standing.AT_TIP
                # It falls behind while the clock goes on.
                later = NOW + LAG_MS + 30_000
                found = await asked.look(later)
                assert found.standing is Standing.LAGGING and "93 s old" in found.why

    anyio.run(run)


def test_one_of_another_network_refuses_and_says_so() -> None:
    async def run() -> None:
        async with peer(magic=2) as other, relay(other.port) as asked:
            found = await asked.look(NOW)
            assert (found.standing, found.tip) == (Standing.OTHER_NETWORK, None)
            assert "networkMagic 1 is not 2" in found.why

    anyio.run(run)


def test_a_tip_beyond_the_clock_is_invented() -> None:
    async def run() -> None:
        async with peer() as other, relay(other.port) as asked:
            await other.add(Block(PREPROD.clock.at(NOW + SKEW_MS) + 1, 7))
            found = await asked.look(NOW)
            assert found.standing is Standing.AHEAD and "not come yet" in found.why

    anyio.run(run)


async def with_chain(other: Peer, blocks: list[Block]) -> Relay:
    await other.add(*blocks)
    return relay(other.port)


async def thrice(*relays: Relay) -> list[Standing]:
    """What is found at the third look together; the first two find nobody apart."""
    together, found = Together(again_s=0), list[Standing]()
    for _ in range(3):
        assert set(found) <= {Standing.AT_TIP}
        read = [(one, await one.look(NOW)) for one in relays]
        assert {reading.standing for _, reading in read} == {Standing.AT_TIP}
        found = [reading.standing for reading in await together.judge(read)]
    for one in relays:
        await one.hang_up()
    return found


def test_a_chain_that_no_other_has_is_found() -> None:
    """One makes up a whole chain: every hash is right, and its tip is young. That the others are
    apart is for each to say of its neighbours, so of two both are.
    """

    async def run() -> None:
        at = PREPROD.clock.at(NOW)
        chain = [Block(at - 100 + 20 * n, 1000 + n) for n in range(5)]
        invented = [replace(block, salt="invented") for block in chain]
        async with peer() as first, peer() as second, peer() as third:
            one, two = await with_chain(first, chain), await with_chain(second, chain)
            liar = await with_chain(third, invented)
            fine, apart = Standing.AT_TIP, Standing.APART
            assert await thrice(one, two, liar) == [fine, fine, apart]
            assert await thrice(one, liar) == [apart, apart]
            assert await thrice(one, two) == [fine, fine]

    anyio.run(run)


def test_a_relay_that_says_yes_to_everything_is_found_by_the_others() -> None:
    async def run() -> None:
        at = PREPROD.clock.at(NOW)
        tip = [[at - 1, bytes(32)], 5]

        def yes(protocol: Protocol, message: list[Any]) -> bytes:
            if protocol is Protocol.KEEP_ALIVE:
                return answer(8, [1, message[1]])
            return answer(2, [5, message[1][0], tip] if message[0] == 4 else [1])

        async with peer() as other, told(shaking(yes)) as port:
            one = await with_chain(other, [Block(at - 5, 1)])
            assert await thrice(one, relay(port)) == [Standing.AT_TIP, Standing.APART]

    anyio.run(run)


def test_of_others_that_do_not_answer_nothing_follows() -> None:
    async def run() -> None:
        at = PREPROD.clock.at(NOW)
        async with peer() as other:
            one = await with_chain(other, [Block(at - 5, 1)])
            reading = await one.look(NOW)
            together, nobody = Together(again_s=0), relay(1)
            for _ in range(4):
                found = await together.judge([(one, reading), (nobody, reading)])
                assert found[0].standing is Standing.AT_TIP
            await one.hang_up()

    anyio.run(run)


# ---- peers that are none -------------------------------------------------------------------------

TIP = [[PREPROD.clock.at(NOW) - 1, bytes(32)], 5]


def answer(protocol: int, message: Any) -> bytes:
    raw = cbor2.dumps(message)
    return bytes(4) + (0x8000 | protocol).to_bytes(2, "big") + len(raw).to_bytes(2, "big") + raw


@asynccontextmanager
async def told(says: Callable[[Protocol, list[Any]], bytes | None]) -> AsyncGenerator[int]:
    """A peer that answers each message as *says* does; None: it hangs up."""

    async def serve(stream: anyio.abc.SocketStream) -> None:
        segments = Segments()
        async with stream:
            try:
                while True:
                    data = bytearray(await stream.receive())
                    for at in _heads(data):  # as if it were answered, to be read by our own reader
                        data[at + 4] |= 0x80
                    for protocol, message in segments.receive(bytes(data)):
                        said = says(protocol, message)
                        if said is None:
                            return
                        await stream.send(said)
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield int(listener.extra(anyio.abc.SocketAttribute.local_port))
        tasks.cancel_scope.cancel()


def _heads(data: bytearray) -> list[int]:
    found, at = [], 0
    while at < len(data):
        found.append(at)
        at += 8 + int.from_bytes(data[at + 6 : at + 8], "big")
    return found


def shaking(
    then: Callable[[Protocol, list[Any]], bytes | None],
) -> Callable[[Protocol, list[Any]], bytes | None]:
    """A handshake as it should be, and *then*."""

    def says(protocol: Protocol, message: list[Any]) -> bytes | None:
        if protocol is Protocol.HANDSHAKE:
            return answer(0, [1, 14, [1, False, 0, False]])
        return then(protocol, message)

    return says


def synced(protocol: Protocol, message: list[Any]) -> bytes:
    """It says a tip, and where it is asked for it hands out another block as the last."""
    if protocol is Protocol.KEEP_ALIVE:
        return answer(8, [1, message[1]])
    if message[0] == 4:
        return answer(2, [5, message[1][0], TIP] if not message[1][0] else [6, TIP])
    return answer(2, [1])


LIARS = {
    "hangs up": (lambda _p, _m: None, Standing.SILENT, "no answer"),
    "says nothing": (lambda _p, _m: b"", Standing.SILENT, "no answer within"),
    "is a web server": (lambda _p, _m: b"HTTP/1.1 400 Bad Request\r\n\r\n", Standing.SILENT, ""),
    "breaks off its CBOR": (lambda _p, _m: bytes(4) + b"\x80\x00\x00\x02\x82\x01", Standing.SILENT, ""),
    "is no CBOR": (lambda _p, _m: bytes(4) + b"\x80\x00\x00\x01\xff", Standing.MALFORMED, ""),
    "takes a version that was not offered": (
        lambda _p, _m: answer(0, [1, 7, [1, False, 0, False]]), Standing.MALFORMED, "handshake"),
    "accepts and is of another network": (
        lambda _p, _m: answer(0, [1, 14, [2, False, 0, False]]), Standing.OTHER_NETWORK, "2, not 1"),
    "knows no version of ours": (lambda _p, _m: answer(0, [2, [0, [9]]]), Standing.REFUSING, "no version"),
    "answers another protocol": (lambda _p, _m: answer(5, [0]), Standing.MALFORMED, "protocol 5"),
    "answers what was not asked": (
        shaking(lambda _p, _m: answer(2, [1])), Standing.MALFORMED, "not asked"),
    "says a tip that is none": (
        shaking(lambda _p, _m: answer(2, [5, [], [[1, b"x"], 5]])), Standing.MALFORMED, "point"),
    "says a negative block": (
        shaking(lambda _p, _m: answer(2, [5, [], [[1, bytes(32)], -5]])), Standing.MALFORMED, "number"),
    "hands out less than it says": (shaking(synced), Standing.UNPROVEN, "another block"),
    "says more than a message may be": (
        lambda _p, _m: (bytes(4) + b"\x80\x00\xff\xff" + b"\x9f" + b"\x00" * 65_534) * 2,
        Standing.MALFORMED, ""),
}  # fmt: skip


@pytest.mark.parametrize("kind", LIARS)
def test_each_that_is_none_is_told_apart(kind: str) -> None:
    says, standing, why = LIARS[kind]

    async def run() -> None:
        within_s = 1.0 if standing is Standing.SILENT else 60.0
        async with told(says) as port, relay(port, within_s=within_s) as asked:
            found = await asked.look(NOW)
            assert found.standing is standing and why in found.why, found
            again = await asked.look(NOW)  # a new connection, and the same
            assert again.standing is standing

    anyio.run(run)


def test_where_nobody_listens_and_where_somebody_does_again() -> None:
    async def run() -> None:
        async with peer() as other:
            await other.add(Block(PREPROD.clock.at(NOW) - 1, 3))
            port = other.port
            asked = relay(port)
            assert (await asked.look(NOW)).standing is Standing.AT_TIP
        lost = await asked.look(NOW)
        assert lost.standing in (Standing.SILENT, Standing.UNREACHABLE)
        assert (await asked.look(NOW)).standing is Standing.UNREACHABLE

    anyio.run(run)


def test_the_command_says_where_each_stands() -> None:
    """As an operator types it, at the clock of today."""

    async def run() -> None:
        async with peer() as good, peer() as old, peer(magic=2) as other:
            now = PREPROD.clock.at(SystemClock().now_ms())
            await good.add(Block(now - 3, 20))
            await old.add(Block(now - 4_000, 10))
            places = [f"127.0.0.1:{one.port}" for one in (good, old, other)]
            asked = (
                "node",
                "probe",
                *places,
                "--network",
                "preprod",
                "--json",
                "--count",
                "2",
                "--within",
                "1m",
            )
            done = await anyio.run_process(
                [sys.executable, "-m", "marketplace.cli.main", *asked, "--every", "100ms"],
                check=False,
            )
            rows = [json.loads(line) for line in done.stdout.decode().splitlines()]
            assert [row["standing"] for row in rows] == ["AT_TIP", "LAGGING", "OTHER_NETWORK"] * 2
            assert (rows[0]["slot"], rows[0]["block"], rows[0]["version"]) == (now - 3, 20, 14)
            assert done.returncode == 1
            done = await anyio.run_process(
                [sys.executable, "-m", "marketplace.cli.main", "node", "probe", places[0],
                 "--network", "preprod", "--within", "1m"], check=False,
            )  # fmt: skip
            assert done.returncode == 0 and b"at tip" in done.stdout

    anyio.run(run)
