"""A market, a chain and the own books on paper, for one job at its consumer; any of them may lie,
come late, or see the process die.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from marketplace.client.jobs.core import effects, inputs
from marketplace.client.jobs.core.agreeing import freezes, steps
from marketplace.client.jobs.core.decide import decide
from marketplace.client.jobs.core.effects import Effect, Step
from marketplace.client.jobs.core.inputs import Input
from marketplace.client.jobs.core.quotes import CheckedQuote, Quote, QuoteRefused
from marketplace.client.jobs.core.stage import Stage
from marketplace.client.jobs.core.state import OwnChannel, OwnLease, State, restored
from marketplace.domain.money.terms import SignedTerms
from marketplace.domain.work.job_machine import JobState
from tests.unit.support import payer

BUDGET = 1_000
EXPIRES_MS = 1_000_000


class Died(BaseException):
    """The process is gone; the books are not."""


class Away(BaseException):
    """A fault of the market or the chain: the process goes on with what it knows."""


@dataclass
class World:
    """*kept*: channels stay open for other jobs once their leases are over."""

    dice: Random
    kept: bool = False
    now: int = 0
    state: State = field(default_factory=State)
    books: dict[bytes, OwnChannel] = field(default_factory=dict[bytes, OwnChannel])
    opened: list[bytes] = field(default_factory=list[bytes])
    told: set[str] = field(default_factory=set[str])
    shown: dict[str, CheckedQuote] = field(default_factory=dict[str, CheckedQuote])
    yes: set[str] = field(default_factory=set[str])
    no: set[str] = field(default_factory=set[str])
    heard: list[Input] = field(default_factory=list[Input])
    views: list[inputs.Viewed] = field(default_factory=list[inputs.Viewed])
    quotes: int = 0
    fair: bool = False
    reported: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.view = inputs.Viewed(JobState.POSTED)

    # ---- the process -----------------------------------------------------------------------

    def feed(self, given: Input) -> None:
        """As the shell does: decide from the books, then perform in order."""
        if not isinstance(given, inputs.Viewed):
            self.heard.append(given)
        self.state = replace(self.state, channels=tuple(self.own()))
        outcome = decide(self.state, given, self.now)
        self.state = outcome.state
        for effect in outcome.effects:
            self.may_die()
            answer = self.perform(effect)
            self.may_die()
            if answer is not None:
                self.feed(answer)

    def may_die(self, odds: float = 0.001) -> None:
        luck = 1.0 if self.fair else self.dice.random()
        if luck < 2 * odds:
            raise Died if luck < odds else Away

    def restart(self) -> None:
        """A new life: nothing but the books is known, and nobody waits for an answer. What was
        declined is forgotten where the job has paid already: its own rule answers from here on.
        """
        self.state = restored(self.own())
        if self.own():
            self.no.clear()

    def perform(self, effect: Effect) -> Input | None:
        match effect:
            case effects.Look():
                return self.looked()
            case effects.Examine(quote):
                return self.examined(quote)
            case effects.Ask(offered):
                self.shown[offered.quote.terms.lease] = offered
            case effects.Agree(offered):
                return self.agree(offered)
            case effects.Decline(lease):
                heeded = self.fair or self.dice.random() < 0.5
                if heeded and self.view.lease == lease and self.view.state is JobState.QUOTED:
                    self.view = inputs.Viewed(JobState.ENDED, lease)
            case effects.Report(refusal):
                self.reported.append(refusal.code)
            case effects.ResumeWithFreshKey():
                self.view = replace(self.view, needs_key=False)
            case effects.LookAtLease(lease):
                over = lease != self.view.lease or self.view.state is JobState.ENDED
                return inputs.LeaseSeen(lease, over, "")
            case effects.Bury(lease, lost):
                self.bury(lease, lost)
            case effects.LookAtChannel(session_vk):
                return self.chain_shows(session_vk)
            case _:
                pass
        return None

    # ---- the market ------------------------------------------------------------------------

    def looked(self) -> inputs.Viewed:
        """The truth, or anything that was ever true."""
        self.views.append(self.view)
        stale = not self.fair and self.dice.random() < 0.2
        return self.dice.choice(self.views) if stale else self.view

    def quote(self, ceiling: int = 0) -> None:
        """On a fresh key, or on a channel that stands; now and then dearer than the budget."""
        self.quotes += 1
        standing = [vk for vk, one in self.books.items() if one.open_tx and not one.end_asked]
        reuse = self.kept and bool(standing) and self.dice.random() < 0.5
        vk = self.dice.choice(standing) if reuse else bytes([self.quotes]) * 32
        terms = payer.terms(
            f"lease_{self.quotes}", session_vk=vk, expires_at_ms=EXPIRES_MS,
            ceiling=ceiling or self.dice.choice([50, 50, 100, 100, 200, 300] * 4 + [BUDGET, 2 * BUDGET]),
        )  # fmt: skip
        body = terms.encode()
        quote = Quote(SignedTerms(body, payer.ADAPTER.sign(body)), terms, not reuse, "", False, {})
        self.view = inputs.Viewed(JobState.QUOTED, terms.lease, quote=quote)

    def moves(self) -> None:
        """Whatever a market does, or says that it does."""
        state, luck = self.view.state, self.dice.random()
        if state is JobState.ENDED:
            return
        if state in (JobState.POSTED, JobState.QUOTED) and luck < 0.5:
            self.quote()
        elif luck < 0.52 and self.view.lease in self.told:
            self.view = inputs.Viewed(JobState.ENDED, self.view.lease)
        elif luck < 0.8:
            self.view = inputs.Viewed(JobState.POSTED, needs_key=self.dice.random() < 0.3)
        elif self.view.lease in self.told:
            self.view = inputs.Viewed(JobState.RUNNING, self.view.lease)

    def bill(self) -> None:
        """A provider asks for all that it may have, whatever the market says of its lease."""
        for vk, channel in self.books.items():
            leases = [
                replace(one, approved=self.dice.randint(one.approved, one.cap))
                for one in channel.leases
            ]
            self.books[vk] = replace(channel, leases=tuple(leases))

    def bury(self, lease: str, lost: bool) -> None:
        for vk, channel in self.books.items():
            if all(one.lease != lease for one in channel.leases):
                continue
            leases = tuple(
                replace(one, over=True) if one.lease == lease else one for one in channel.leases
            )
            idle = all(one.over for one in leases) and (lost or not self.kept)
            self.books[vk] = replace(channel, leases=leases, end_asked=channel.end_asked or idle)

    def chain_shows(self, session_vk: bytes) -> Input:
        channel = self.books[session_vk]
        if channel.end_asked and (self.fair or self.dice.random() < 0.5):
            self.books[session_vk] = replace(channel, ended=True)
        return inputs.ChannelLooked()

    # ---- agreeing --------------------------------------------------------------------------

    def examined(self, quote: Quote) -> Input:
        terms = quote.terms
        spent = sum(one.approved for one in self.leases())
        if terms.ceiling + spent > BUDGET:
            return inputs.Unfit(terms.lease, QuoteRefused("too dear"), ours=True)
        amount = terms.ceiling + 7 if quote.fresh else 3
        return inputs.Checked(CheckedQuote("job_1", quote, amount, 7, spent))

    def agree(self, offered: CheckedQuote) -> Input | None:
        lease = offered.quote.terms.lease
        by_rule = bool(self.own())
        self.bill()
        try:
            for step in freezes(offered, self.own()):
                self.take(offered, step, by_rule)
            self.bill()  # what is on its way arrives meanwhile
            for step in steps(offered, self.own(), BUDGET, 0):
                self.take(offered, step, by_rule)
        except QuoteRefused as refusal:
            return inputs.Unfit(lease, refusal, ours=True)
        if not self.fair and self.dice.random() < 0.05:
            return inputs.Unfit(lease, QuoteRefused("the chain says no"), ours=False)
        return inputs.Agreed(lease)

    def take(self, offered: CheckedQuote, step: Step, by_rule: bool) -> None:
        self.may_die(0.02)
        terms = offered.quote.terms
        vk, lease = terms.session_vk, terms.lease
        match step:
            case effects.Allow(session_vk, name, more):
                channel = self.books[session_vk]
                self.books[session_vk] = replace(channel, leases=tuple(
                    replace(one, cap=min(one.ceiling, one.approved + more))
                    if one.lease == name else one for one in channel.leases
                ))  # fmt: skip
            case effects.KeepBook():
                self.books.setdefault(vk, OwnChannel(vk, "", False, False, ()))
            case effects.Sign(cap):
                self.sign(offered, cap, by_rule)
            case effects.OpenChannel(amount):
                channel = self.books[vk]
                assert any(one.lease == lease for one in channel.leases), "opened and not signed"
                assert vk not in self.opened, "a second channel of one key"
                if lease in self.shown:
                    assert amount <= self.shown[lease].amount
                self.books[vk] = replace(channel, open_tx="ab" * 32)
                self.opened.append(vk)
            case effects.TellMarket():
                assert self.books[vk].open_tx, "the market was told of a channel that is not there"
                self.told.add(lease)
                if self.view.lease == lease and self.view.state is JobState.QUOTED:
                    self.view = inputs.Viewed(JobState.STARTING, lease)
            case _:
                pass
        self.may_die(0.02)

    def sign(self, offered: CheckedQuote, cap: int, by_rule: bool) -> None:
        terms = offered.quote.terms
        assert terms.lease not in self.no, "signed what was declined"
        assert by_rule or terms.lease in self.yes, "signed what nobody approved"
        assert all(one.lease != terms.lease for one in self.leases()), "signed twice"
        assert cap == terms.ceiling
        assert cap + sum(one.cap for one in self.leases()) <= BUDGET, "more than the budget"
        channel = self.books[terms.session_vk]
        fresh = OwnLease(terms.lease, terms.ceiling, cap, 0, False)
        self.books[terms.session_vk] = replace(channel, leases=(*channel.leases, fresh))

    def answer(self) -> None:
        """A person answers one of the quotes that were shown, in time or not; an answer stands."""
        if self.shown:
            lease = self.dice.choice([*self.shown, *list(self.shown)[-1:] * 3])
            yes = lease in self.yes or (lease not in self.no and self.dice.random() < 0.9)
            (self.yes if yes else self.no).add(lease)
            self.feed(inputs.Answered(lease, yes))

    # ---- seen ------------------------------------------------------------------------------

    def own(self) -> Sequence[OwnChannel]:
        return tuple(channel for channel in self.books.values() if channel.leases)

    def leases(self) -> list[OwnLease]:
        return [one for channel in self.books.values() for one in channel.leases]

    def check(self) -> None:
        assert sum(one.approved for one in self.leases()) <= BUDGET
        assert sorted(self.opened) == sorted(set(self.opened))
        assert len(self.opened) <= len(self.leases())
        if self.state.stage is Stage.OVER:
            assert all(channel.home for channel in self.state.channels)
