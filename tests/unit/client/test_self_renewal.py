"""Weeks of a lease that its payer renews by rule: the provider's own adapter core, the payer's own
book, and a market between them that relays, or does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

from adapter.core.events import Sighted
from adapter.core.state import Own
from marketplace.client.jobs.runner import Runner
from marketplace.client.jobs.self_renewal import SelfRenewal
from marketplace.client.net.clock import Stamp
from marketplace.client.net.http import MarketFault, MarketRefused
from marketplace.client.payer.channel_payer import ChannelPayer, Paid
from marketplace.client.payer.payers import Payers
from marketplace.client.payer.renewal_rule import DayTooDear, RenewalRule, RuleRefused, day_owed
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.receipt import Receipt
from marketplace.domain.money.renewal import renewed
from marketplace.domain.money.terms import SignedTerms, Terms
from marketplace.domain.protocol import wire
from marketplace.domain.work.lease import EndReason, LeaseState
from tests.unit.client.test_payer_journal import FACTS, VK
from tests.unit.support.adapter import ADAPTER, RATE, SESSION, WALL, Bench, offer
from tests.unit.support.answers import plain_job

HOUR = 60_000
"""A minute stands for an hour, but for the real weeks below: a tick lasts no longer."""
DAY, WEEK = 24 * HOUR, 7 * 24 * HOUR
WEEKS, REAL_WEEK = 3, 7 * 86_400_000
LEASE, JOB = "lease_1", "job_1"


@dataclass
class World:
    """A lease of a week, renewed for a week each time that two days are left. *away*: the market is
    not there; *loses*: it takes a signature under renewed terms, and its answer is lost; *hides*:
    it and its provider say that each came too late.
    """

    folder: Path
    bench: Bench
    held: ChannelPayer = field(init=False)
    runner: Runner = field(init=False)
    renewal: SelfRenewal = field(init=False)
    paid_in: list[int] = field(default_factory=list[int])
    told: list[Paid] = field(default_factory=list[Paid])
    away: bool = False
    loses: int = 0
    hides: bool = False
    said: list[wire.Message] = field(default_factory=list[wire.Message])
    week_ms: int = WEEK
    offered: SignedTerms | None = None
    taken: SignedTerms | None = None

    @property
    def terms(self) -> Terms:
        """What its payer last signed."""
        return self.held.book.leases[LEASE].terms

    async def begin(self) -> None:
        """The lease runs, and its channel has what it may cost."""
        week_ms, day_ms = self.week_ms, self.week_ms // 7
        self.bench.running(tick_ms=HOUR, max_duration_ms=week_ms, ceiling=RATE * week_ms // 10**9)
        signed = self.bench.lease().signed
        self.taken = replace(signed, session_signature=SESSION.sign(signed.body))
        self.bench.capacity = signed.terms.ceiling
        self.bench.sight()
        await self.payer()
        await self.held.agree(signed, signed.terms.ceiling)
        await self.held.opened("cd" * 32, 0, self.bench.capacity)
        await self.held.progress(wire.LeaseProgress(LEASE, "STARTED", WALL, {}))
        await self.held.renew_by(LEASE, RenewalRule(week_ms, 2 * day_ms, day_owed(signed.terms)))

    async def payer(self) -> None:
        """A process of the payer's begins, and the one before is gone."""
        if hasattr(self, "held"):
            await self.held.let_go()
        payers = Payers(self.folder, "http://market", 42, None)  # pyright: ignore[reportArgumentType]

        async def tell(paid: Paid) -> None:
            self.told.append(paid)

        async def send(message: wire.Message) -> None:
            self.bench.hear(message)

        payers.listen(tell)
        payers.link.send = send
        if payers.known(VK):
            self.held = await payers.take(VK, SESSION)
            await self.held.opened("cd" * 32, 0, self.bench.capacity)
        else:
            self.held = await payers.create(replace(FACTS, state=ChannelStage.OPENING), SESSION)
        self.runner = Runner(self, None, self, payers)  # pyright: ignore[reportArgumentType]
        self.runner.took(JOB, self.bench.lease().job)
        self.renewal = SelfRenewal(self.runner)

    # ---- the chain ---------------------------------------------------------------------------

    async def top_up(self, _session: bytes, _at: object, amount: int, _asset: str) -> int:
        self.paid_in.append(amount)
        self.bench.capacity += amount
        self.claimed()
        return self.bench.capacity

    def claimed(self) -> None:
        """The adapter took from the channel what it was paid, and sees that it did."""
        most = self.bench.capacity
        self.bench.do(Sighted(VK, ChannelStage.OPEN, self.held.book.signed, most, most))

    # ---- the market --------------------------------------------------------------------------

    async def get(self, path: str) -> dict[str, Any]:
        if self.away:
            raise MarketFault("the market is away")
        if path == f"/v1/jobs/{JOB}":
            spec = self.bench.lease().job.to_wire()
            return plain_job(state="RUNNING", spec=spec, lease=LEASE, channel=VK.hex())
        assert path == f"/v1/leases/{LEASE}", path
        return self.lease()

    def lease(self, refused: str = "") -> dict[str, Any]:
        assert self.taken is not None
        offered = self.offered
        return {
            "terms": self.taken.body.hex(),
            "renewal_refused": refused,
            "renewal": offered
            and {"terms": offered.body.hex(), "adapter_signature": offered.adapter_signature.hex()},
        }

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.away:
            raise MarketFault("the market is away")
        if path.endswith("/renewal"):
            return self.ask(body["duration_ms"], body["budget"])
        assert path == f"/v1/leases/{LEASE}/renewal/sign", path
        expired = self.offered is not None and self.offered.terms.expires_at_ms < self.wall_ms
        if self.offered is None or expired or self.hides:
            raise MarketRefused("it waits for no signature", code="QUOTE_GONE", status=409)
        signature = bytes.fromhex(body["session_signature"])
        self.taken = replace(self.offered, session_signature=signature)
        self.taken.verify()
        self.offered = None
        self.bench.hear(wire.LeaseSigned(LEASE, self.taken, "", {}))
        if self.loses:
            self.loses -= 1
            raise MarketFault("its answer was lost")
        return self.lease()

    def ask(self, duration_ms: int, budget: int) -> dict[str, Any]:
        assert self.taken is not None
        if self.offered is None or self.offered.terms.expires_at_ms < self.wall_ms:
            until = self.wall_ms + 60_000
            if self.hides:  # and so does the adapter: it signs for more upon what nobody took
                body = renewed(self.terms, duration_ms, budget, until).encode()
                self.offered = SignedTerms(body, ADAPTER.sign(body))
                return self.lease()
            body = renewed(self.taken.terms, duration_ms, budget, until).encode()
            self.bench.hear(wire.LeaseProposed(LEASE, self.bench.lease().job, body))
            said = self.bench.sent()[-1]
            if isinstance(said, wire.LeaseDeclined):
                return self.lease(f"{said.code}: {said.message}")
            assert isinstance(said, wire.LeaseAccepted)
            self.offered = said.terms
        return self.lease()

    # ---- time --------------------------------------------------------------------------------

    @property
    def wall_ms(self) -> int:
        return self.bench.now.wall_ms

    async def hours(self, number: int, each: Callable[[], None] = lambda: None) -> None:
        """So many are served and paid for, and the payer looks after each."""
        for hour in range(number):
            if hour % 60 == 0:  # serves nobody without a chain for half a day, or beyond 100 ADA
                self.claimed()
            if self.bench.lease().state is LeaseState.ACTIVE:
                self.bench.tick(ms=HOUR, pay=False)
            else:
                self.bench.boot_ms += HOUR
            for message in self.news():
                if isinstance(message, wire.ReceiptSent):
                    await self.held.receipt(message.receipt)
                elif isinstance(message, wire.LeaseProgress):
                    await self.held.progress(message)
            await self.renewal.look()
            each()
        self.news()

    def news(self) -> list[wire.Message]:
        """What the adapter said since it was last heard."""
        news = self.bench.sent()
        self.bench.outcomes.clear()
        self.said += news
        return news

    def receipts(self) -> list[Receipt]:
        return [one.receipt.receipt for one in self.said if isinstance(one, wire.ReceiptSent)]

    def renewals(self) -> int:
        """How often the adapter said that the lease goes on."""
        said = [one.stage for one in self.said if isinstance(one, wire.LeaseProgress)]
        return said.count("RENEWED")

    def heard(self, kind: str) -> list[Paid]:
        return [paid for paid in self.told if paid.kind == kind]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    supply = offer(tick_ms=HOUR)
    made = World(tmp_path, Bench(Own(supply, ADAPTER)))
    monkeypatch.setattr(
        Stamp, "now", lambda: Stamp("boot", made.bench.boot_ms, made.bench.now.wall_ms)
    )
    yield made
    assert made.bench.now.wall_ms >= WALL


@pytest.mark.parametrize(
    ("weeks", "week_ms"),
    [
        pytest.param(WEEKS, WEEK, id="compressed"),
        pytest.param(1, REAL_WEEK, id="a real week", marks=pytest.mark.prove),
        pytest.param(
            WEEKS, REAL_WEEK, id="real weeks", marks=[pytest.mark.nightly, pytest.mark.timeout(900)]
        ),
    ],
)
def test_weeks_go_by_without_a_gap_within_the_budget_of_a_day(
    world: World, weeks: int, week_ms: int
) -> None:
    async def story() -> None:
        world.week_ms = week_ms
        await world.begin()
        first = world.terms

        def within() -> None:
            elapsed = world.bench.boot_ms - world.bench.lease().started_at_ms
            ahead = elapsed + 2 * week_ms // 7 + week_ms
            assert first.ceiling + sum(world.paid_in) <= RATE * ahead // 10**9
            assert world.held.book.signed <= RATE * (elapsed + HOUR) // 10**9

        ticks = weeks * week_ms // HOUR
        await world.hours(ticks, within)
        assert world.bench.lease().state is LeaseState.ACTIVE
        assert len(world.paid_in) == len(world.heard("renewed")) == weeks
        assert world.heard("not_renewed") == []
        assert world.renewals() == weeks
        receipts = world.receipts()
        assert len(receipts) == ticks
        for earlier, later in pairwise(receipts):
            assert (later.t0_ms, later.previous) == (earlier.t1_ms, earlier.hash)
        owed = RATE * weeks * week_ms // 10**9
        assert world.held.book.signed == receipts[-1].channel_owed == owed

    anyio.run(story)


def test_a_provider_that_will_not_go_on_is_left_within_the_notice(world: World) -> None:
    async def story() -> None:
        await world.begin()
        await world.hours(8 * 24)
        paid_in = list(world.paid_in)
        assert len(paid_in) == 1
        dearer = replace(world.bench.own.offer, gpu_rates={"NVIDIA H100": RATE + 1})
        world.bench.own = replace(world.bench.own, offer=dearer)
        await world.hours(4 * 24)
        assert world.heard("not_renewed") == []  # not asked yet
        await world.hours(2)
        no = world.heard("not_renewed")
        assert [one.code for one in no] == ["RENEWAL_DECLINED"] and "PRICE_BELOW" in no[0].message
        await world.hours(2 * 24)
        assert world.bench.lease().reason is EndReason.MAX_DURATION
        assert world.paid_in == paid_in  # nothing more went into its channel
        assert len(world.heard("not_renewed")) <= 21

    anyio.run(story)


def test_a_price_that_came_back_in_time_renews_it(world: World) -> None:
    async def story() -> None:
        await world.begin()
        usual = world.bench.own
        world.bench.own = replace(
            usual, offer=replace(usual.offer, gpu_rates={"NVIDIA H100": RATE + 1})
        )
        await world.hours(6 * 24)
        assert world.paid_in == [] and world.heard("not_renewed")
        world.bench.own = usual
        await world.hours(24)
        assert len(world.paid_in) == 1 and world.bench.lease().state is LeaseState.ACTIVE

    anyio.run(story)


@pytest.mark.parametrize("dies", [False, True], ids=["goes on", "begins anew"])
def test_an_answer_that_is_lost_renews_it_once(world: World, dies: bool) -> None:
    async def story() -> None:
        await world.begin()
        world.loses = 1
        await world.hours(5 * 24 + 1)
        assert world.held.book.leases[LEASE].known_ms == WEEK
        if dies:
            await world.payer()
            assert world.held.book.leases[LEASE].known_ms == WEEK
        await world.hours(3)
        assert world.held.book.leases[LEASE].known_ms == 0
        assert world.renewals() == len(world.paid_in) == 1
        assert world.bench.lease().terms == world.terms

    anyio.run(story)


@pytest.mark.parametrize("dies", [False, True], ids=["goes on", "begins anew"])
def test_a_signature_that_never_arrived_is_given_again(
    world: World, dies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The market is away from the moment of the payment on: for a day, so its quote is over."""

    async def story() -> None:
        await world.begin()
        pays = world.top_up

        async def then_away(*given: Any) -> int:
            world.away = True
            return await pays(*given)

        monkeypatch.setattr(world, "top_up", then_away)
        await world.hours(5 * 24 + 1)
        assert world.away and world.terms.max_duration_ms == 2 * WEEK
        await world.hours(24)
        world.away = False
        monkeypatch.setattr(world, "top_up", pays)
        if dies:
            await world.payer()
        await world.hours(12)
        assert world.held.book.leases[LEASE].known_ms == 0
        assert world.bench.lease().terms == world.terms
        assert world.terms.max_duration_ms == 2 * WEEK and len(world.paid_in) == 1
        await world.hours(24)
        assert world.bench.lease().state is LeaseState.ACTIVE

    anyio.run(story)


def test_a_market_that_hides_what_was_signed_fills_no_channel(world: World) -> None:
    async def story() -> None:
        await world.begin()
        world.hides = True
        await world.hours(7 * 24)
        assert len(world.paid_in) == 1 and world.terms.max_duration_ms == 2 * WEEK
        assert world.heard("renewed") == []

    anyio.run(story)


def test_without_its_rule_it_ends_when_agreed(world: World) -> None:
    async def story() -> None:
        await world.begin()
        await world.held.renew_by(LEASE, None)
        await world.payer()  # as a book has it, too
        await world.hours(7 * 24 + 1)
        assert world.bench.lease().reason is EndReason.MAX_DURATION and world.paid_in == []

    anyio.run(story)


def test_a_process_that_does_not_look_after_the_job_does_not_renew_it(world: World) -> None:
    async def story() -> None:
        await world.begin()
        world.runner.follows = lambda job: False
        await world.hours(6 * 24)
        assert world.paid_in == []

    anyio.run(story)


def test_a_day_that_is_too_dear_is_refused_at_once(world: World) -> None:
    async def story() -> None:
        await world.begin()
        with pytest.raises(DayTooDear, match="a day costs"):
            await world.held.renew_by(LEASE, RenewalRule(WEEK, 2 * DAY, day_owed(world.terms) - 1))
        assert world.held.book.leases[LEASE].rule is not None  # the one before

    anyio.run(story)


@pytest.mark.parametrize(
    ("for_ms", "left_ms", "day"), [(WEEK, 0, 0), (DAY, WEEK, 0), (0, 0, 0), (WEEK, DAY, -1)]
)
def test_a_rule_renews_something_and_not_always(for_ms: int, left_ms: int, day: int) -> None:
    with pytest.raises(RuleRefused):
        RenewalRule(for_ms, left_ms, day)


def test_whoever_said_no_is_asked_seldom_and_whoever_said_nothing_soon() -> None:
    day = 86_400_000
    weeks, short = RenewalRule(7 * day, 2 * day), RenewalRule(20_000, 10_000)
    assert weeks.again_ms(answered=True) == 2 * day // 20
    assert weeks.again_ms(answered=False) == 60_000
    assert short.again_ms(answered=True) == short.again_ms(answered=False) == 1_000
