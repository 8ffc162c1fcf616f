"""Keeps one cluster: looks at its members, decides (:mod:`.core`), and has the orders signed and
passed on; for as long as the process runs, which pays for all of them.

Every order is written down before it is sent, and said again until the market shows it. Nothing
that the market says makes one: what it shows is held against the terms that were signed, and a
place that no adapter signed is not used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import anyio
import structlog

from marketplace.client.clusters.core import (
    Kept,
    Member,
    Order,
    Ordered,
    Rules,
    decide,
    restored,
    words,
)
from marketplace.client.clusters.guests import Guests
from marketplace.client.clusters.proven import Known
from marketplace.client.clusters.stage import Stage
from marketplace.client.net.cluster_answers import (
    ClusterAnswer,
    ClusterMemberAnswer,
    SignedAnswer,
)
from marketplace.client.net.http import Http
from marketplace.client.net.reading import AnswerUnreadable, read
from marketplace.client.payer.channel_payer import ChannelPayer
from marketplace.client.payer.ordered import NothingToOrder
from marketplace.client.payer.payers import Payers
from marketplace.domain.errors import Halt, Malformed, Refusal, TallyError
from marketplace.domain.work.cluster_order import SignedOrder, Verb
from marketplace.domain.work.lease import LeaseState
from marketplace.domain.work.mesh import MeshPeer, MeshPlace, MeshSight, MeshUnproven

log = structlog.get_logger("tally.cluster")
LOOK_S: Final = 1.0
SOON_S: Final = 0.2
"""Before the next look at a cluster that stands still, and of which something changed just now."""
_LIVING: Final = {one.name for one in (LeaseState.FUNDED, LeaseState.ACTIVE, LeaseState.PAUSED)}
_OVER: Final = {one.name for one in (LeaseState.ENDING, LeaseState.ENDED)}
_ENDS: Final = ("TAKES_NO_ORDER", NothingToOrder.code)
"""Of a lease that is just ending, or waits for its account's turn: the next look shows it."""
_AT_ONCE: Final = 16
_FIRST: Final = (Verb.HOLD, Verb.MEET, Verb.RUN)
"""In which order they are sent: nobody is billed for the time that others' orders take."""


class ClusterElsewhere(Refusal):
    """Another process of this purse pays for one of its members."""

    code = "CLUSTER_ELSEWHERE"
    remedy = "nothing is ordered meanwhile: end that process, or this one"


@dataclass(frozen=True)
class Change:
    """How a cluster stands now, in *words*; or, with a *code*, what is wrong with it."""

    words: str
    code: str = ""


Told = Callable[[Change], None]


class Keeper:
    """Of the cluster of *gang*, whose members are *jobs*, by number."""

    def __init__(
        self, http: Http, payers: Payers, gang: str, jobs: Sequence[str], rules: Rules,
        guests: Guests | None = None,
    ) -> None:  # fmt: skip
        self.gang, self.jobs, self.rules = gang, tuple(jobs), rules
        self._http, self._payers, self._guests = http, payers, guests
        self._met: tuple[MeshPeer, ...] = ()
        self._kept: Kept | None = None
        self._sights: dict[str, MeshSight] = {}
        self._known = Known()
        self._rows: Sequence[ClusterMemberAnswer] = ()
        self._stirs = False
        self._said = ""
        self._notes: set[str] = set()
        self._noted: set[str] = set()  # by the look before
        self._listeners: list[Told] = []

    @property
    def stage(self) -> Stage:
        """As last decided."""
        return Stage.ASSEMBLING if self._kept is None else self._kept.stage

    @property
    def _is_over(self) -> bool:
        return self.stage is Stage.ENDED

    @property
    def words(self) -> str:
        """How it stands, in a few words; empty before the first look."""
        return self._said

    def listen(self, told: Told) -> None:
        """Hear of each change from now on, and how it stands now."""
        self._listeners.append(told)
        if self._said:
            told(Change(self._said))

    async def run(self) -> None:
        """Until it has ended. Whatever the market does: the members' receipts are answered beside
        it, by whoever called this.
        """
        while not self._is_over:
            self._noted, self._notes = self._notes, set()
            try:
                await self._look()
            except Halt:
                raise
            except TallyError as error:  # the market is away, say: what runs runs on
                self._note(error)
            if not self._is_over:
                waits = self._stirs and self.stage in (Stage.ASSEMBLING, Stage.STALLED)
                await anyio.sleep(min(SOON_S, LOOK_S) if waits else LOOK_S)

    async def _look(self) -> None:
        self._stirs = False
        answer = await self._http.get(f"/v1/gangs/{self.gang}/cluster")
        seen = read(ClusterAnswer, answer, "cluster")
        rows = seen["members"]
        if [(row["member"], row["job"]) for row in rows] != list(enumerate(self.jobs)):
            raise AnswerUnreadable(f"{self.gang}: the market shows other members than it took")
        self._met = self._let_in()
        members = self._proven([self._member(row) for row in rows], rows)
        kept = restored(members) if self._kept is None else self._kept
        kept, orders = decide(
            kept, members, _now(), self.rules, over=seen["over"], guests=self._met
        )  # fmt: skip
        self._stirs, self._rows = rows != self._rows, rows
        shown = {row["lease"]: row["order"] for row in rows}
        for verb in _FIRST:
            if some := [one for one in orders if one.verb is verb]:
                await self._give_all(some, shown)
        self._kept = kept
        if self._is_over and self._guests is not None:
            self._guests.forget()
        self._say(words(kept, self.rules))

    def _let_in(self) -> tuple[MeshPeer, ...]:
        """The consumer's own machines, as its own folder has them by now: nobody else adds one."""
        if self._guests is None or not self.rules.mesh:
            return ()
        try:
            return tuple(one.peer for one in self._guests.read(_wall_ms()))
        except Malformed as error:  # nobody is let in by what cannot be read
            self._note(error)
            return ()

    async def _give_all(
        self, orders: Sequence[Order], shown: Mapping[str | None, SignedAnswer | None]
    ) -> None:
        """Some at a time: each waits for a disk and for the market."""
        left, halts = iter(orders), list[Halt]()

        async def give() -> None:
            for order in left:
                try:
                    await self._give(order, _order(shown[order.lease]))
                except Halt as halt:
                    halts.append(halt)
                except TallyError as error:  # one that is just ending holds up no other
                    if error.code not in _ENDS:
                        self._note(error)

        async with anyio.create_task_group() as tasks:
            for _ in range(min(_AT_ONCE, len(orders))):
                tasks.start_soon(give)
        if halts:
            raise halts[0]

    async def _give(self, order: Order, shown: SignedOrder | None) -> None:
        """Signed where it is new, sent where the market does not show it."""
        if order.lease in self._payer(order.lease).final:
            return  # it has ended, which the market is about to say
        signed = await self._payers.order(order.lease, order.verb, order.peers, shown)
        if signed != shown:
            body = {"body": signed.body.hex(), "signature": signed.signature.hex()}
            await self._http.post(f"/v1/leases/{order.lease}/order", body)
            log.info("ordered", lease=order.lease, verb=order.verb, version=signed.order.version)

    # ---- what is seen ---------------------------------------------------------------------------

    def _member(self, row: ClusterMemberAnswer) -> Member:
        lease, state = row["lease"], row["state"]
        if lease is None or state not in _LIVING:
            replaced = row["lost"] or bool(row["needs"])
            return Member(row["member"], done=state in _OVER and not replaced)
        if self._payer(lease).book.leases[lease].terms.job != row["job"]:
            raise AnswerUnreadable(f"{self.gang}: lease {lease} is not member {row['member']}'s")
        ordered = self._ordered(lease, _order(row["order"]))
        return Member(row["member"], lease, row["started"], ordered=ordered)

    def _ordered(self, lease: str, shown: SignedOrder | None) -> Ordered | None:
        """The newest that was signed: a book that lost its end knows less than the market."""
        signed = self._payers.ordered(lease)
        if shown is not None:
            try:
                version = self._known.order(lease, self._payer(lease).session_vk, shown).version
            except Refusal as error:
                self._note(error)
            else:
                if signed is None or version > signed.order.version:
                    signed = shown
        if signed is None:
            return None
        return Ordered(signed.order.version, signed.order.verb, signed.order.peers)

    def _payer(self, lease: str) -> ChannelPayer:
        for held in self._payers.all:
            if lease in held.book.leases:
                return held
        raise ClusterElsewhere(f"{self.gang}: this process does not pay for lease {lease}")

    def _adapter(self, lease: str) -> bytes:
        return self._payer(lease).book.leases[lease].terms.adapter_vk

    def _proven(
        self, members: Sequence[Member], rows: Sequence[ClusterMemberAnswer]
    ) -> tuple[Member, ...]:
        """With what their adapters signed of their mesh."""
        if not self.rules.mesh:
            return tuple(members)
        found: list[Member] = []
        keys = {one.key for one in self._met}  # who runs a member may say another's key
        for one, row in zip(members, rows, strict=True):
            place = self._place(one, row)
            if place is not None and place.key in keys:
                self._note(MeshUnproven(f"member {one.at} says the key of another one"))
                place = None
            if place is not None:
                keys.add(place.key)
            found.append(_with(one, place, self._sight(one, row)))
        return tuple(found)

    def _place(self, one: Member, row: ClusterMemberAnswer) -> MeshPlace | None:
        if not one.lease or row["place"] is None:
            return None
        try:
            return self._known.place(one.lease, self._adapter(one.lease), row["place"])
        except MeshUnproven as error:
            self._note(error)
            return None

    def _sight(self, one: Member, row: ClusterMemberAnswer) -> MeshSight | None:
        """The newest that was ever shown: an older one again would hide that it hears less."""
        if not one.lease or row["sight"] is None:
            return None
        known = self._sights.get(one.lease)
        try:
            sight = self._known.sight(one.lease, self._adapter(one.lease), row["sight"])
        except MeshUnproven as error:
            self._note(error)
            return known
        if known is None or sight.number > known.number:
            self._sights[one.lease] = known = sight
        return known

    # ---- saying ---------------------------------------------------------------------------------

    def _say(self, said: str) -> None:
        if said != self._said:
            self._said = said
            log.info("cluster", gang=self.gang, what=said)
            self._tell(Change(said))

    def _note(self, error: TallyError) -> None:
        """Not with every look again."""
        known = self._notes | self._noted
        self._notes.add(error.message)
        if error.message not in known:
            log.warning("cluster", gang=self.gang, code=error.code, why=error.message)
            self._tell(Change(error.line(), error.code))

    def _tell(self, change: Change) -> None:
        for told in self._listeners:
            told(change)


def _order(said: SignedAnswer | None) -> SignedOrder | None:
    """As the market shows it; None for what is none, which is as if it showed nothing."""
    if said is None:
        return None
    try:
        order = SignedOrder(bytes.fromhex(said["body"]), bytes.fromhex(said["signature"]))
        _ = order.order
    except (ValueError, Malformed):
        return None
    return order


def _with(one: Member, place: MeshPlace | None, sight: MeshSight | None) -> Member:
    return Member(one.at, one.lease, one.started, one.done, one.ordered, place, sight)


def _now() -> int:
    """Milliseconds of a clock that nobody sets."""
    return time.monotonic_ns() // 1_000_000


def _wall_ms() -> int:
    """Milliseconds of the clock that a guest's time ends by."""
    return time.time_ns() // 1_000_000
