"""What a purse has, and where: its address, and each of its channels, by its books and the chain
together.

The ledger says what there is; a book says what was signed of it, for whom it is kept and until
when. A channel without a book here (a lost home, another machine's) is listed all the same: its
address is the purse's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread

from marketplace.chain.encoding.datum import read_stage
from marketplace.chain.encoding.utxo import Utxo
from marketplace.client.payer import journal
from marketplace.client.payer.journal import Loaded
from marketplace.client.wallet.chain_wallet import Till
from marketplace.domain.errors import Malformed
from marketplace.domain.money.channel import Closing, Stage
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.route.payer import PayerBook, kept


@dataclass(frozen=True)
class Holding:
    """One channel. Money in lovelace, times in Unix ms.

    *lovelace* is in it on chain, 0 before its open transaction is in a block; of that *owed* is
    signed for and not claimed, the rest *comes_home*. *state*: as the chain shows it, else as its
    book says. *origin*: the output that opened it, empty if no book tells. *outputs*: what is
    unspent under its key, usually one. *idle_until_ms*: when its provider ends it, None while a
    lease runs or if nothing was ordered. *leases*: those that are not over. *holder*: the process
    that signs for it now, 0 if none does. *book*: whether one is here. *router*: it is a hop, and
    *provider* its router.
    """

    session_vk: bytes
    state: ChannelStage
    lovelace: int
    claimed: int
    signed: int
    provider: str = ""
    market: str = ""
    asset: str = ""
    origin: str = ""
    outputs: tuple[str, ...] = ()
    keep_ms: int = 0
    idle_until_ms: int | None = None
    expire_at_ms: int | None = None
    leases: tuple[str, ...] = ()
    end_asked: bool = False
    holder: int = 0
    book: bool = False
    router: bool = False

    @property
    def owed(self) -> int:
        """Signed for, and still in it."""
        return 0 if self.asset else min(self.lovelace, max(0, self.signed - self.claimed))

    @property
    def comes_home(self) -> int:
        """What is nobody else's, if it ended now."""
        return self.lovelace - self.owed

    def to_json(self) -> dict[str, object]:
        """For ``--json``."""
        known = {name: value for name, value in vars(self).items() if name != "leases"}
        return {
            **known,
            "session_vk": self.session_vk.hex(),
            "state": self.state.value,
            "outputs": list(self.outputs),
            "running": list(self.leases),
            "owed": self.owed,
            "comes_home": self.comes_home,
        }


@dataclass(frozen=True)
class Holdings:
    """A purse at one chain: *free* lovelace at its address, and its *channels* that are not over.
    *unread*: at the channels' address, and no channel.
    """

    free: int
    channels: tuple[Holding, ...]
    unread: int = 0

    @property
    def locked(self) -> int:
        """In channels, owed or not."""
        return self.unread + sum(one.lovelace for one in self.channels)

    @property
    def owed(self) -> int:
        """Of what is locked, signed for and not claimed yet."""
        return sum(one.owed for one in self.channels)

    @property
    def total(self) -> int:
        """All that the ledger holds under the purse's keys."""
        return self.free + self.locked


async def look(till: Till, books: Path | None) -> Holdings:
    """Everything now; *books* is the folder of the purse's books, None for a key that has none.

    :class:`~marketplace.chain.errors.ChainFault`, :class:`~marketplace.disk.JournalDamaged`.
    """
    known = await anyio.to_thread.run_sync(_books, books, till.chain.magic)
    assets = {"", *(one.facts.asset for one, _ in known.values() if one.facts is not None)}
    free, unread = await till.balance(), 0
    found: dict[bytes, list[tuple[Utxo, Stage, str]]] = {}
    for asset in sorted(assets):
        for utxo in await till.chain.utxos(till.channels_address(asset)):
            stage = _stage(utxo)
            if stage is None:
                unread += utxo.lovelace
            else:
                found.setdefault(stage.consts.session_vk, []).append((utxo, stage, asset))
    rows = [_holding(vk, found.get(vk, []), *known.get(vk, (None, 0))) for vk in
            {**found, **known}]  # fmt: skip
    living = [one for one in rows if one.outputs or one.state is not ChannelStage.ENDED]
    return Holdings(free, tuple(sorted(living, key=lambda one: -one.lovelace)), unread)


def _books(folder: Path | None, magic: int) -> dict[bytes, tuple[Loaded, int]]:
    """Each book of this chain, and the process that holds it."""
    if folder is None:
        return {}
    known: dict[bytes, tuple[Loaded, int]] = {}
    for session_vk in journal.channels_in(folder):
        loaded = journal.peek(folder, session_vk)
        facts = loaded.facts
        if facts is not None and facts.magic == magic and not facts.hop:  # those are no channels
            known[session_vk] = (loaded, journal.holder(folder, session_vk))
    return known


def _stage(utxo: Utxo) -> Stage | None:
    try:
        return read_stage(utxo.datum) if utxo.datum is not None else None
    except Malformed:
        return None


def _state(said: ChannelStage, found: bool) -> ChannelStage:
    """What was open and of which nothing is left has ended, whether or not its book knows."""
    gone = not found and said is not ChannelStage.OPENING
    return ChannelStage.ENDED if gone else said


def _holding(
    session_vk: bytes, found: list[tuple[Utxo, Stage, str]], loaded: Loaded | None, busy: int
) -> Holding:
    lovelace = sum(utxo.lovelace for utxo, _, _ in found)
    claimed = max((stage.claimed for _, stage, _ in found), default=0)
    closing = [stage.expire_at_ms for _, stage, _ in found if isinstance(stage, Closing)]
    state = ChannelStage.CLOSING if closing else ChannelStage.OPEN
    outputs = tuple(str(utxo.ref) for utxo, _, _ in found)
    expire = max(closing, default=None)
    if loaded is None or loaded.facts is None:
        asset = found[0][2]
        return Holding(session_vk, state, lovelace, claimed, 0, asset=asset, outputs=outputs,
                       expire_at_ms=expire)  # fmt: skip
    facts = loaded.facts
    leases = tuple(sorted(set(loaded.terms) - loaded.final)) + paid_over(loaded.hop)
    ordered = facts.keep_ms and not leases and loaded.terms and loaded.heard_wall_ms
    return Holding(
        session_vk,
        _state(state if found else facts.state, bool(found)),
        lovelace,
        claimed,
        loaded.book.signed,
        provider=facts.provider,
        market=facts.market,
        asset=facts.asset,
        origin=f"{facts.open_tx}#{facts.index}" if facts.open_tx else "",
        outputs=outputs,
        keep_ms=facts.keep_ms,
        idle_until_ms=loaded.heard_wall_ms + facts.keep_ms if ordered else None,
        expire_at_ms=expire,
        leases=leases,
        end_asked=loaded.end_sent,
        holder=busy,
        book=True,
        router=bool(facts.router),
    )


def paid_over(hop: PayerBook | None) -> tuple[str, ...]:
    """The leases for which something of a hop is still kept."""
    if hop is None:
        return ()
    alone = ((one, PayerBook(hop.paying, {terms: one})) for terms, one in hop.leases.items())
    return tuple(sorted(one.lease for one, book in alone if kept(book) > 0))
