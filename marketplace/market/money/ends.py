"""Channels that providers offer to have ended: put together into one transaction, each asked.

Offers are kept in memory: one is said again every minute, and whoever is not taken ends by itself
when it waited long enough. A provider that is silent or refuses costs the others a round, so it is
left out for a while. What the operator pays is bounded by end and by day, and what a day has cost
is kept in the store: opening channels only to have them ended here brings nobody anything, but it
would cost the operator.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from marketplace.domain.errors import Conflict
from marketplace.domain.money.terms import Terms
from marketplace.domain.protocol import wire
from marketplace.market.base.errors import Offline
from marketplace.market.base.ports import Change, EndOffer
from marketplace.market.base.records import Audit, Channel, Setting
from marketplace.market.context import TRIES, Market, log

ANSWER_S: Final = 20.0
"""For an adapter that looks at every input through its own door."""
MOST_OFFERS: Final = 1_000
MOST_AT_ONCE: Final = 64
"""In one round: each is looked up on the chain, and 44 fit into a transaction."""
MOST_EACH: Final = 64
"""Of one provider."""
OUT_MS: Final = 60_000
OUT_MOST_MS: Final = 3_600_000
"""So long is left out who gave no signature; doubled with each time in a row."""
DAY_MS: Final = 86_400_000
SPENT: Final = "ends.spent"
"""The setting that says what a day's ends have cost: the day since 1970, and lovelace."""


@dataclass
class _Out:
    """Until when a provider is not asked, and how often in a row it gave no signature."""

    until_ms: int = 0
    times: int = 0


@dataclass
class Ends:
    """Of this process. *seconds*: how long a provider is waited for."""

    market: Market
    seconds: float = ANSWER_S
    offers: dict[tuple[str, bytes], EndOffer] = field(
        default_factory=dict[tuple[str, bytes], EndOffer]
    )
    out: dict[str, _Out] = field(default_factory=dict[str, _Out])

    async def offered(self, provider: str, message: wire.EndOffered) -> None:
        """Keep an offer, or leave it to its adapter at once."""
        market, vk = self.market, message.session_vk
        channel = await market.store.get(Channel, vk)
        if channel is None or channel.provider != provider:
            self._decline(provider, vk, "UNKNOWN", "this market knows no such channel of yours")
            return
        mine = sum(name == provider for name, _ in self.offers)
        if (provider, vk) not in self.offers:
            if mine >= MOST_EACH or len(self.offers) >= MOST_OFFERS:
                self._decline(provider, vk, "TOO_MANY", "so many ends at once are not taken")
                return
        if market.ledger is None or not market.epoch or not await self._room():
            self._decline(provider, vk, "NO_BATCH", "this market ends no channels for others now")
            return
        terms = Terms.decode(channel.terms)
        self.offers[provider, vk] = EndOffer(provider, terms, channel.payout_address, message)

    def gone(self, provider: str) -> None:
        """Its connection is over: what it offered is said again when it is back."""
        for key in [key for key in self.offers if key[0] == provider]:
            del self.offers[key]

    async def round(self) -> str:
        """One transaction for as many as sign; its id, empty if none was sent."""
        market = self.market
        room = await self._room()
        asked = [o for o in self.offers.values() if self._asked(o.provider)]
        able = sorted(asked, key=lambda o: o.offered.until_ms)[: min(room, MOST_AT_ONCE)]
        if market.ledger is None or not able:
            return ""
        done = await market.ledger.end_together(able, self._ask, market.settings.end_share)
        for provider, why in done.left.items():
            out = self.out.setdefault(provider, _Out())
            out.until_ms = market.now + min(OUT_MOST_MS, OUT_MS << min(out.times, 10))
            out.times += 1
            log.info("end_left_out", provider=provider, why=why[:200], times=out.times)
        for one in able:
            vk = one.terms.session_vk
            if vk in done.unfit:
                self.offers.pop((one.provider, vk), None)
                self._decline(one.provider, vk, "UNFIT", done.unfit[vk])
            elif vk in done.ended:
                self.offers.pop((one.provider, vk), None)
                self.out.pop(one.provider, None)
        if done.tx:
            facts = [vk.hex() for vk in done.ended]
            note = market.note("market", "channel.end", done.tx, channels=facts, fee=done.fee)
            await self._spend(done.fee, note)
            log.info("ended_together", tx=done.tx, channels=len(done.ended), fee=done.fee)
        return done.tx

    async def _ask(self, provider: str, tx: bytes) -> tuple[bytes, bytes] | str:
        """Its key and signature; why there are none."""
        name = self.market.ids.new("ends")
        try:
            answer = await self.market.providers.ask(
                provider, name, wire.EndsProposed(name, tx), self.seconds
            )
        except Offline as silent:
            return silent.message
        if isinstance(answer, wire.EndsSigned):
            return answer.verify_key, answer.signature
        return f"{answer.code}: {answer.message}"[:300]

    async def _room(self) -> int:
        """How many more ends the operator pays for today."""
        rules = self.market.settings
        _, spent = await self._spent()
        return max(0, rules.end_budget - spent) // max(1, rules.end_share)

    async def _spent(self) -> tuple[Setting | None, int]:
        """What is written down, and what of it is today's."""
        known = await self.market.store.get(Setting, SPENT)
        day, _, lovelace = known.value.partition(" ") if known is not None else ("", "", "0")
        return known, int(lovelace) if day == str(self.market.now // DAY_MS) else 0

    async def _spend(self, fee: int, note: Audit) -> None:
        """Written down with the note of it, whoever else does so at the same moment."""
        for _ in range(TRIES):
            known, spent = await self._spent()
            value = f"{self.market.now // DAY_MS} {spent + fee}"
            row = Setting(SPENT, value) if known is None else replace(known, value=value)
            change = Change(puts=[note]) if known is not None else Change(puts=[note, row])
            if known is not None:
                change.sets.append(row)
            try:
                await self.market.store.apply(change)
                return
            except Conflict:
                continue
        raise Conflict("what ends have cost keeps changing")

    def _asked(self, provider: str) -> bool:
        out = self.out.get(provider)
        return self.market.providers.connected(provider) and (
            out is None or out.until_ms <= self.market.now
        )

    def _decline(self, provider: str, session_vk: bytes, code: str, why: str) -> None:
        self.market.providers.tell(provider, wire.EndDeclined(session_vk, code, why[:300]))
