"""Strangers' bytes by the million: valid ones, mangled by their structure, and bytes out of
nowhere.

Everything follows from a seed. :func:`corpus` is what is mangled, :data:`DOORS` is what it is given
to.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from types import MappingProxyType
from typing import Any, Final
from zlib import crc32

import cbor2

from marketplace.chain.build import plans
from marketplace.chain.encoding import lenient, plutus, txbytes
from marketplace.chain.encoding.datum import stage_bytes
from marketplace.chain.signin import verify_sign_in
from marketplace.chain.transaction.outputs import Out
from marketplace.client.net.signin import sign_message
from marketplace.domain import canonical, cbor
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.money.channel import Open
from marketplace.domain.money.keep import Keep
from marketplace.domain.money.receipt import Lost, Receipt, SignedReceipt
from marketplace.domain.money.route.offer import RouterOffer
from marketplace.domain.money.route.route import Route
from marketplace.domain.money.route.statement import Statement
from marketplace.domain.money.route.terms import RoutedTerms
from marketplace.domain.money.terms import Terms
from marketplace.domain.money.voucher import End, Voucher, VoucherRefused
from marketplace.domain.protocol import codec, wire
from marketplace.domain.work.cluster_order import ClusterOrder, SignedOrder, Verb
from marketplace.domain.work.cluster_store import StorePlace
from marketplace.domain.work.mesh import Heard, MeshPlace, MeshSight, SignedMesh, public
from marketplace.domain.work.mesh_relay import RelayPlace
from tests.fakes import offer, seed, spec
from tests.unit.support import payer, routed
from tests.unit.support import snapshot as chain
from tests.unit.support.bytes import bombs

_AT: Final = "http://market.example"
_LEASE: Final = "lease_01ABCDEFGHJKMNPQRSTVWXYZ01"
_PLACE: Final = MeshPlace(_LEASE, bytes(range(32)), public("203.0.113.9", 51_820))
_ORDER: Final = ClusterOrder(_LEASE, 3, Verb.RUN, (_PLACE.peer(1),))
_SIGHT: Final = MeshSight(_LEASE, 3, 9, (Heard(1, 900, 5, 6),))


def _receipt(number: int = 1, **more: Any) -> Receipt:
    fields: dict[str, Any] = {
        "session_vk": payer.SESSION.verify_key, "lease": _LEASE, "seq": number,
        "t0_ms": 1000 * (number - 1), "t1_ms": 1000 * number, "wall_ms": 1000 * number,
        "device": payer.DEVICES, "resource": "gpu", "unit_ms_total": 1_000_000 * number,
        "lease_owed": 2000 * number, "channel_owed": 2000 * number, "lost": (),
        "readings": bytes(32), "previous": bytes(32), "final": False,
    }  # fmt: skip
    return Receipt(**{**fields, **more})


def _messages() -> list[wire.Message]:
    """One of every kind that goes over a socket."""
    agreed = payer.signed_terms(payer.terms())
    receipt = SignedReceipt.sign(_receipt(), payer.ADAPTER)
    voucher = Voucher.sign(payer.SESSION, 2_000_000)
    tick = wire.ReceiptSent(_LEASE, receipt)
    return [
        wire.Hello("payer", payer.SESSION.verify_key, bytes(16), 7, 42, "tally-payer/0.1", _AT),
        wire.Challenge(bytes(range(32))), wire.Proof(bytes(range(64))),
        wire.Welcome(3, bytes(16), 1_700_000_000_000), wire.Rejected("CODE", "text", "remedy"),
        wire.Data(9, codec.to_bytes(tick)), wire.Ack(12), tick, wire.VoucherSent(_LEASE, voucher),
        wire.OfferPosted(offer(seed("provider")), draining=False),
        wire.LeasesHeld([_LEASE, "lease_2"]), wire.LeaseAccepted(_LEASE, agreed),
        wire.LeaseDeclined(_LEASE, "BUSY", "no room"),
        wire.LeaseProgress(_LEASE, "PULLING", 5, {"done": 7, "total": None, "ok": True, "x": b"y"}),
        wire.LogChunk(_LEASE, 4096, "stdout", b"a line\n" * 20),
        wire.Telemetry(_LEASE, 5, {"gpu": 99, "memory": 4096}),
        wire.OutputReady(_LEASE, "out/a.bin", "ab" * 32, 12),
        wire.BlobPart(_LEASE, "ab" * 32, 0, 300, bytes(300)),
        wire.LeaseProposed(_LEASE, spec(), payer.terms().encode()),
        wire.LeaseSigned(_LEASE, agreed, "cd" * 32, {"TOKEN": b"sealed" * 9}),
        wire.EndSent(End.sign(payer.SESSION, 5)), wire.KeepSent(Keep.sign(payer.SESSION, 9)),
        wire.StopAsked(_LEASE, "CANCELLED"),
        wire.ExecAsked(_LEASE, "call", ["nvidia-smi", "-L"]), wire.StreamOpened(_LEASE, "s1", 80),
        wire.ShellOpened(_LEASE, "s2", ["sh"], 24, 80), wire.ShellSized(_LEASE, "s2", 50, 132),
        wire.RelayLooked(_LEASE, 5, "LAGGING", "its tip is 400 s old"),
        wire.OrderSent(_LEASE, SignedOrder.sign(payer.SESSION, _ORDER)),
        wire.MeshPlaced(_LEASE, SignedMesh.sign(payer.ADAPTER, _PLACE)),
        wire.MeshSeen(_LEASE, SignedMesh.sign(payer.ADAPTER, _SIGHT)),
        wire.MeshRelay(_LEASE, RelayPlace("203.0.113.5", 42_000, 64, bytes(32)).give("g", 1, 2, 3)),
        wire.StoreAsked(_LEASE),
        wire.StoreGiven(_LEASE, StorePlace("https://a.b", bytes(32)).give("one", "run", _LEASE)),
        wire.StockTold(bytes(range(64)), 1800, 400, 70_000_000),
        wire.ManifestTold(_LEASE, ['{"layers": []}']),
        wire.Subscribe(payer.SESSION.verify_key, bytes(64)),
    ]  # fmt: skip


def _wallet() -> list[bytes]:
    """Outputs, transactions, witness sets, signatures, datums and redeemers."""
    unsigned = plans.pay(
        chain.snapshot(), chain.funds(50 * chain.ADA), [Out(chain.payout_address("p"), chain.ADA)]
    ).finish()
    wallet = chain.WALLET.signer
    rows = [[wallet.verify_key, wallet.sign(unsigned.tx_id)]]
    raw = b"\x60" + wallet.key_hash
    signed = sign_message(wallet, raw, b"Sign in to Tally")
    place, tag = [bytes(32), 1], cbor2.CBORTag
    steps = plutus.encode((plutus.Constr(0, (5, 5, bytes(64))), plutus.Constr(3, (7,))))
    assets = {bytes(28): {b"coin": 5, b"": 2**64 - 1}}
    return [
        unsigned.bytes, unsigned.sign(wallet).bytes, steps,
        cbor2.dumps({0: rows}), cbor2.dumps({0: tag(258, rows), 5: {(3, 0): [[1], [9, 9]]}}),
        cbor2.dumps([place, [raw, 2_000_000]]),
        cbor2.dumps([place, {0: raw, 1: [2_000_000, assets], 2: [1, tag(24, steps)]}]),
        cbor2.dumps([place, {0: raw, 1: 5, 3: tag(24, b"\x82\x03\x43\x01\x02\x03")}]),
        bytes.fromhex(signed.signature), bytes.fromhex(signed.key),
        stage_bytes(Open(chain.consts("p"), 0)),
    ]  # fmt: skip


def _routes() -> list[bytes]:
    """What is signed for a routed lease."""
    way = routed.journey("lease_1", routed.LEASE_1, 1000)
    statement = routed.hop_row(routed.HOP_IN, [routed.BLIND], into=True)["statement"]
    body = bytes.fromhex(statement["body"])
    return [way.routed.encode(), way.route.encode(), routed.OFFER.encode(), body]


def _route(raw: bytes) -> None:
    """The one of four that its tag says; its hash is of exactly these bytes."""
    for kind in (RoutedTerms, Route, RouterOffer, Statement):
        with suppress(Refusal):
            if kind.decode(raw).hash != canonical.blake2b_256(raw):
                raise AssertionError(f"{kind.__name__} hashes to something else")
            return
    raise Malformed("none of the four took it")


@cache
def corpus(kind: str) -> tuple[bytes, ...]:
    """Valid bytes of *kind*: frames, receipts, terms, vouchers, routes or wallet."""
    lost = (Lost("paused", 300), Lost("clock", 7))
    made: dict[str, Callable[[], list[bytes]]] = {
        "frames": lambda: [codec.to_bytes(m) for m in _messages()],
        "receipts": lambda: [
            _receipt().encode(), _receipt(2**40, lost=lost, final=True).encode(),
            _receipt(3, resource="core").encode(),
        ],
        "terms": lambda: [
            payer.terms().encode(), payer.terms(asset="ab" * 40, ceiling=2**62).encode()
        ],
        "vouchers": lambda: [
            canonical.encode(kind.to_wire())
            for cum in (0, 24, 2_000_000, 2**63 - 1)
            for kind in (Voucher.sign(payer.SESSION, cum), End.sign(payer.SESSION, cum))
        ],
        "routes": _routes,
        "wallet": _wallet,
    }  # fmt: skip
    return tuple(made[kind]())


def _frame(raw: bytes) -> None:
    message = codec.from_bytes(raw)
    if isinstance(message, wire.Data):
        message = codec.from_bytes(message.payload)
    if isinstance(message, wire.ReceiptSent):
        message.receipt.verify(payer.ADAPTER.verify_key)
    elif isinstance(message, wire.LeaseProposed):
        Terms.decode(message.terms)
    codec.to_bytes(message)


def _voucher(raw: bytes) -> None:
    value = canonical.decode(raw, cbor.RECORD)
    for signed in (Voucher.from_wire(value), End.from_wire(value)):
        with suppress(VoucherRefused):
            signed.verify()


_OWN: Final = "60" + chain.WALLET.signer.key_hash.hex()
WALLET_DOORS: Final[tuple[Callable[[bytes], object], ...]] = (
    txbytes.read_utxo,
    txbytes.key_witnesses,
    txbytes.inputs_of,
    txbytes.outputs_of,
    txbytes.until_of,
    txbytes.required_signers_of,
    plutus.decode,
    lenient.steps_of,
    lenient.state_of,
    txbytes.settle_redeemers,
    lambda raw: txbytes.insert_witnesses(corpus("wallet")[0], raw),
    lambda raw: verify_sign_in(_OWN, raw.hex(), corpus("wallet")[9].hex(), mainnet=False),
    lambda raw: verify_sign_in(_OWN, corpus("wallet")[8].hex(), raw.hex(), mainnet=False),
)


def _any_of_wallet(raw: bytes) -> None:
    """Three of the ways in, by the bytes themselves: what one refuses the next one may take."""
    first, refused = crc32(raw), 0
    for turn in range(3):
        try:
            WALLET_DOORS[(first + turn) % len(WALLET_DOORS)](raw)
        except Refusal:
            refused += 1
    if refused == 3:
        raise Malformed("none of the three took it")


DOORS: Final = MappingProxyType[str, Callable[[bytes], object]](
    {
        "frames": _frame,
        "receipts": lambda raw: Receipt.decode(raw).hash,
        "terms": lambda raw: Terms.decode(raw).hash,
        "vouchers": _voucher,
        "routes": _route,
        "wallet": _any_of_wallet,
    }
)
HEADS: Final = tuple(
    bytes.fromhex(h)
    for h in (
        "00 17 1818 19ffff 1affffffff 1bffffffffffffffff 20 3bffffffffffffffff 3b7fffffffffffffff"
        " 40 5818 5f 5bffffffffffffffff 60 7f 7b000000ffffffffff 80 9f 98ff 9bffffffffffffffff a0 bf"
        " b8ff bbffffffffffffffff c0 c1 c240 c249010000000000000000 c340 c4821b7fffffffffffffff01"
        " c5821a3b9aca0001 c6 d81e820100 d8184100 d823 d81c d81d00 d87980 d8668200 d90102 d9010480"
        " f4 f5 f6 f7 f97e00 fb7ff0000000000000 f8ff ff 1c 5c dfffff 0000"
    ).split()
)


def mangled(chance: random.Random, kind: str) -> bytes:
    """The next input: one to four changes of a valid one, or none of these."""
    valid = corpus(kind)
    turn = chance.random()
    if turn < 0.03:
        return chance.randbytes(chance.randrange(80))
    if turn < 0.04:
        return chance.choice(_SMALL_BOMBS)
    raw = chance.choice(valid)
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 4))):
        at = chance.randrange(len(raw) + 1)
        match chance.randrange(9):
            case 0:
                raw = raw[:at] + bytes((chance.randrange(256),)) + raw[at + 1 :]
            case 1:
                raw = raw[:at] + raw[at + chance.randrange(1, 9) :]
            case 2:
                raw = raw[:at] + chance.choice(HEADS) + raw[at:]
            case 3:
                raw = raw[:at] + chance.choice(HEADS) + raw[at + 1 :]
            case 4:
                raw = raw[:at]
            case 5:  # a piece twice, or a piece of another
                other = chance.choice(valid)
                start = chance.randrange(len(other))
                raw = raw[:at] + other[start : start + chance.randrange(1, 40)] + raw[at:]
            case 6:
                raw = (
                    chance.choice((b"\x81", b"\xa1\x61a", b"\x9f", b"\xd8\x18", b"\x82\x00")) + raw
                )
            case 7 if raw and at < len(raw):
                raw = raw[:at] + bytes((raw[at] ^ 1 << chance.randrange(8),)) + raw[at + 1 :]
            case _:
                raw += chance.choice(HEADS)
        raw = raw or b"\x80"
    return raw


_SMALL_BOMBS: Final = tuple(bombs(300).values())


def inputs(seed_: int, kind: str, count: int) -> Iterator[bytes]:
    """*count* of them."""
    chance = random.Random(f"{kind}/{seed_}")
    for _ in range(count):
        yield mangled(chance, kind)
