"""What the use cases need from the world. Small fakes of these live in ``tests/fakes.py``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from marketplace.domain.money.chain_fees import ChainFees
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.terms import Terms
from marketplace.domain.money.voucher import Voucher
from marketplace.domain.protocol import wire
from marketplace.market.base.records import Record

R = TypeVar("R", bound=Record)


@dataclass
class Change:
    """One atomic change: all of it is durable, or none.

    *puts* are inserted (a key that exists is a Conflict); *sets* replace the record of the same
    key and version (another version is a Conflict) and raise the version by one; *raises* are
    inserted or replace a lesser one (vouchers); *drops* delete by key, silently if absent; *sends*
    go into the outbox; *topics* are told to all processes after the commit. *fence* is the lock
    (name, epoch) that must still be held.
    """

    puts: list[Record] = field(default_factory=list[Record])
    sets: list[Record] = field(default_factory=list[Record])
    raises: list[Record] = field(default_factory=list[Record])
    drops: list[Record] = field(default_factory=list[Record])
    sends: list[tuple[str, wire.Message]] = field(
        default_factory=list[tuple[str, wire.Message]]
    )  # target, message
    topics: list[str] = field(default_factory=list[str])
    fence: tuple[str, int] | None = None


class Store(Protocol):
    """The one durable memory. Reads see every change that an ``apply`` returned from."""

    async def get(self, kind: type[R], *key: object) -> R | None:
        """The record, or None."""
        ...

    async def find(
        self,
        kind: type[R],
        *,
        order: Sequence[str] = (),
        after: tuple[object, ...] | None = None,
        limit: int = 1000,
        **where: object,
    ) -> list[R]:
        """Records whose fields equal *where* (a tuple or list means any of; ``x__lt``, ``x__le``,
        ``x__gt``, ``x__ge`` compare). *order* names fields, ``-`` before one for descending, the
        key by default; *after* are the ordered values of the last record of the page before."""
        ...

    async def newest(
        self, kind: type[R], group: str, by: str, values: Sequence[object]
    ) -> dict[object, R]:
        """The record with the greatest *by* for each of *values* of the field *group* that has
        any.
        """
        ...

    async def count(self, kind: type[Record], **where: object) -> int:
        """How many records."""
        ...

    async def total(self, kind: type[Record], column: str, **where: object) -> int:
        """The sum of an integer column."""
        ...

    async def apply(self, change: Change) -> None:
        """Durable when it returns. Conflict: nothing was changed; StoreFault: unknown, retry."""
        ...

    async def among(self, kind: type[Record], column: str, values: Sequence[object]) -> set[object]:
        """Those of *values* (bytes, text or integers) that some record has in *column*."""
        ...

    async def ping(self) -> None:
        """StoreFault unless it answers."""
        ...


class Providers(Protocol):
    """The adapters that are connected to this process."""

    def connected(self, provider: str) -> bool:
        """True when its adapter's socket ends here."""
        ...

    def able(self, provider: str, capability: str) -> bool:
        """True when it is connected here, and both sides have stated *capability*."""
        ...

    def tell(self, provider: str, message: wire.Message) -> bool:
        """Send without the outbox; False when it is not connected here."""
        ...

    async def ask(self, provider: str, name: str, message: wire.Message, seconds: float) -> Any:
        """Send and wait for the answer that comes under *name*; Offline."""
        ...


class Payers(Protocol):
    """The payers that are connected to this process."""

    def tell(self, session_vk: bytes, message: wire.Message) -> bool:
        """To every payer that speaks for this channel; False when none is here."""
        ...


class Clock(Protocol):
    """Wall time in ms, for labels and expiries."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        ...


class Ids(Protocol):
    """Where names and secrets come from."""

    def new(self, prefix: str) -> str:
        """*prefix* + ``_`` + 26 characters, increasing with time."""
        ...

    def secret(self, size: int) -> bytes:
        """Unguessable bytes."""
        ...


@dataclass(frozen=True)
class UnsignedTx:
    """A transaction for a wallet: exact bytes, what it does, and its fee."""

    id: str
    body: bytes
    fee: int
    summary: dict[str, Any]


@dataclass(frozen=True)
class ChannelOnChain:
    """A channel as a block shows it, so never OPENING; money in lovelace; *ref* is ``txid#index``.

    *agreed*: it lives, and its constants are those of the terms that were asked about.
    """

    state: ChannelStage
    value: int
    claimed: int
    ref: str
    depth: int
    expire_at_ms: int = 0
    agreed: bool = False


@dataclass(frozen=True)
class Claimable:
    """A channel whose greatest voucher may be worth claiming; *payout_address* is the provider's.

    *owed*: what its receipts say was delivered; what was signed ahead of that is not claimed.
    """

    terms: Terms
    open_tx: str
    voucher: Voucher
    payout_address: str
    urgent: bool
    owed: int


@dataclass(frozen=True)
class Claimed:
    """A transaction that claims and was sent: channel → cumulative claimed."""

    id: str
    body: bytes
    fee: int
    channels: dict[bytes, int]


@dataclass(frozen=True)
class EndOffer:
    """A channel that its adapter wants ended together with others', and what the market's records
    say of it: *provider*, who is asked; *terms*; where it is paid.
    """

    provider: str
    terms: Terms
    payout_address: str
    offered: wire.EndOffered


@dataclass(frozen=True)
class EndsDone:
    """What one round of ends did: its transaction (*tx* empty if none was sent), *fee* in lovelace,
    the channels that it *ended*, the providers that it *left* out and why, and which channels can
    be in none.
    """

    tx: str = ""
    fee: int = 0
    ended: tuple[bytes, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict[str, str])
    unfit: Mapping[bytes, str] = field(default_factory=dict[bytes, str])


AskEnds = Callable[[str, bytes], Awaitable[tuple[bytes, bytes] | str]]
"""Asks a provider to sign a transaction: (its key, its signature), or why it does not."""


@dataclass(frozen=True)
class Sighting:
    """A channel as the chain shows it now; *settled* once its end lies too deep for a rollback."""

    state: ChannelStage
    claimed: int
    settled: bool = False


@dataclass(frozen=True)
class ClaimRound:
    """What one round sent, and what it saw of the channels that it was asked about."""

    sent: list[Claimed]
    seen: dict[bytes, Sighting]


@dataclass(frozen=True)
class TxLook:
    """A transaction as the chain shows it: *depth* counts blocks, 0 for in none; *dead*: it can be
    in none any more; *signed*: its bytes carry a witness, so they may be sent again.
    """

    depth: int
    dead: bool
    signed: bool


@dataclass(frozen=True)
class KeptImage:
    """One image of the market's own registry: *bytes* packed, *layers* of them apart."""

    repository: str
    digest: str
    tags: list[str]
    bytes: int
    layers: int
    pushed_ms: int


class OwnRegistry(Protocol):
    """The market's registry of images, asked as the market itself. Fault where it does not
    answer.
    """

    async def documents(self, repository: str, digest: str) -> list[str]:
        """What the image is made of, as ``manifest.layers`` reads it."""
        ...

    async def holdings(self, namespace: str) -> tuple[int, list[KeptImage]]:
        """(bytes that it takes, its images), by name and the latest first."""
        ...

    async def delete(self, repository: str, digest: str) -> bool:
        """The image with all its tags; False if there is none."""
        ...


@dataclass(frozen=True)
class StoreHeld:
    """How much is in a store; *entries*: files and folders; *used_ms*: when it was used last."""

    bytes: int
    entries: int
    used_ms: int


class OwnStores(Protocol):
    """The server of the market's own stores, asked as the market itself. Fault where it does not
    answer.
    """

    async def held(self, store: str) -> StoreHeld | None:
        """What is in it; None: there is none."""
        ...

    async def remove(self, store: str) -> bool:
        """It, with all that is in it; False: there is none. StoreInUse."""
        ...


class Ledger(Protocol):
    """The chain, as far as the market needs it. Absent (None) when no chain is configured."""

    async def network(self) -> dict[str, Any]:
        """Facts for ``GET /v1/network``."""
        ...

    async def fees(self) -> ChainFees | None:
        """What the chain takes for each step of a channel in ADA, by its parameters now; None where
        no channel can be yet."""
        ...

    async def reserve(self, terms: Terms) -> int:
        """Lovelace that a channel holds beyond its ceiling, for Close and the refund."""
        ...

    async def channel(self, terms: Terms, open_tx: str) -> ChannelOnChain | None:
        """What the chain says, None when it does not know it (yet)."""
        ...

    async def unsigned_open(
        self, terms: Terms, amount: int, address: str, utxos: Sequence[bytes]
    ) -> UnsignedTx:
        """For a wallet at *address* (bech32 or hex); *utxos* as CIP-30 gives them, may be empty."""
        ...

    async def unsigned_top_up(
        self, terms: Terms, open_tx: str, amount: int, address: str, utxos: Sequence[bytes]
    ) -> UnsignedTx:
        """The same, adding *amount*."""
        ...

    async def unsigned_close(
        self, terms: Terms, open_tx: str, address: str, utxos: Sequence[bytes]
    ) -> UnsignedTx:
        """The same, starting the close period."""
        ...

    async def witness(self, body: bytes, witnesses: bytes) -> tuple[str, bytes]:
        """(id, signed bytes): the witnesses inserted into the original bytes."""
        ...

    async def submit(self, signed: bytes) -> str:
        """The transaction's id."""
        ...

    async def claim(self, channels: Sequence[Claimable]) -> ClaimRound:
        """Claims what is worth it, the ids kept before the bytes leave; a channel that cannot be
        read, or is not what its terms say, is left out and stops no other."""
        ...

    async def end_together(
        self, offers: Sequence[EndOffer], ask: AskEnds, share_most: int
    ) -> EndsDone:
        """One transaction for as many of *offers* as fit and sign, at most *share_most* lovelace of
        the operator's each."""
        ...

    async def look(self, tx: str, body: bytes) -> TxLook:
        """Where a transaction stands; *body* may be empty where only its id is known."""
        ...
