"""A cluster's member that is lost: its new quote is signed without asking again, within the budget
that was agreed to, and ordered anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from marketplace.chain.encoding.utxo import OutRef
from marketplace.chain.errors import ChannelUnknown
from marketplace.client.jobs.core.quotes import CheckedQuote, QuoteRefused, check
from marketplace.client.jobs.core.stage import Stage
from marketplace.client.jobs.core.state import restored
from marketplace.client.jobs.job_channels import unfinished
from marketplace.client.jobs.jobfiles import LoadedJob
from marketplace.client.jobs.runner import Followed, Runner
from marketplace.client.payer.channel_payer import ChannelPayer
from marketplace.client.payer.ordered import NothingToOrder
from marketplace.client.payer.payers import Payers
from marketplace.client.sdk import gang
from marketplace.client.wallet.purse import Purse
from marketplace.domain.errors import Conflict
from marketplace.domain.keys import verifies
from marketplace.domain.money.chain_fees import ChainFees
from marketplace.domain.money.receipt import Receipt
from marketplace.domain.money.terms import Terms
from marketplace.domain.work.cluster import Cluster
from marketplace.domain.work.cluster_order import Verb
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import Gang, Policy, Price
from tests.fakes import seed
from tests.unit.support.adapter import WALL, core_job, offer, terms_for
from tests.unit.support.answers import plain_job
from tests.unit.support.payer import Paper

MEMBERS, BUDGET = 3, 9_000_000
SPEC = core_job(
    gang=Gang(MEMBERS),
    cluster=Cluster(least=2, mesh=False),
    price=Price(budget=BUDGET, max_core_rate=10**11),
    policy=Policy(max_duration_ms=600_000, retry_on=("provider_lost",), retry_max=3),
)


@dataclass
class Placed:
    """One member's job at the market: its view, and its leases' terms and receipts."""

    at: int
    spec: JobSpec
    session_vk: bytes
    view: dict[str, Any] = field(default_factory=dict[str, Any])
    leases: dict[str, Terms] = field(default_factory=dict[str, Terms])
    ended: dict[str, str] = field(default_factory=dict[str, str])
    bills: dict[str, Paper] = field(default_factory=dict[str, Paper])

    @property
    def id(self) -> str:
        return f"job_{self.at}"


class Market:
    """As much of a market as a gang's consumer asks; *changes* bend the next quotes' terms."""

    def __init__(self, purse: Purse) -> None:
        self.consumer = purse.signer.key_hash
        self.members: list[Placed] = []
        self.made = 0
        self.asked: list[str] = []
        self.changes: dict[str, Any] = {}
        self.conflicts = 0

    def quote(self, one: Placed) -> None:
        """On a provider of its own, with what is left of the member's budget."""
        self.made += 1
        lease, adapter = f"lease_{self.made}", seed(f"adapter-{self.made}")
        supply = replace(offer(), id=f"offer_{self.made}", provider=adapter.verify_key.hex())
        spent = sum(last.lease_owed for last in map(_last, one.bills.values()) if last)
        terms = terms_for(
            supply, one.spec, lease=lease, session_vk=one.session_vk,
            consumer_vkh=self.consumer, ceiling=one.spec.price.budget - spent,
            expires_at_ms=2 * WALL,
        )  # fmt: skip
        terms = replace(terms, job=one.id, **self.changes)
        body = terms.encode()
        one.leases[lease] = terms
        quote = {"terms": body.hex(), "adapter_signature": adapter.sign(body).hex()}
        one.view = plain_job(
            id=one.id, spec=one.spec.to_wire(), gang="gang_1", lease=lease, quote=quote,
            state="QUOTED", retries=len(one.leases) - 1,
        )  # fmt: skip

    def lose(self, one: Placed, reason: str = "PROVIDER_LOST") -> None:
        one.ended[one.view["lease"]] = reason
        one.view |= {"state": "POSTED", "lease": "", "quote": None, "needs": "session_vk"}

    async def get(self, path: str) -> Any:
        kind, name = path.split("/")[2:4]
        if kind == "gangs":
            return {"id": name, "members": [one.view for one in self.members]}
        if kind == "leases":
            found = next(one for one in self.members if name in one.leases)
            reason = found.ended.get(name, "")
            return {"state": "ENDING" if reason else "ACTIVE", "reason": reason}
        return next(one.view for one in self.members if one.id == name)

    async def post(self, path: str, body: dict[str, Any], _key: str = "") -> Any:
        self.asked.append(path)
        match path.split("/")[2:]:
            case ["gangs"]:
                spec = JobSpec.from_wire(body["spec"])
                keys = [bytes.fromhex(vk) for vk in body["session_vks"]]
                for at, (each, vk) in enumerate(zip(spec.members(), keys, strict=True)):
                    self.members.append(Placed(at, each, vk))
                    self.quote(self.members[-1])
                return {"id": "gang_1", "members": [one.view for one in self.members]}
            case ["jobs", job, "resume"]:
                one = next(one for one in self.members if one.id == job)
                if one.view["needs"] != "session_vk" or self.conflicts:
                    self.conflicts -= 1
                    raise Conflict("the job does not wait for a session key")
                one.session_vk = bytes.fromhex(body["session_vk"])
                self.quote(one)
            case ["leases", lease, "sign"]:
                one = next(one for one in self.members if lease in one.leases)
                terms = one.leases[lease]
                signature = bytes.fromhex(body["session_signature"])
                assert verifies(terms.session_vk, terms.encode(), signature)
                one.view |= {"state": "RUNNING", "quote": None}
                one.bills[lease] = Paper()
            case ["leases", lease, "decline"]:
                one = next(one for one in self.members if lease in one.leases)
                one.view |= {"state": "ENDED", "quote": None, "reason": "DECLINED"}
            case _:
                pass
        return {}


def _last(paper: Paper) -> Receipt | None:
    return paper.last


class Rig:
    """A cluster's consumer; the chain takes whatever is opened, and shows none of it yet."""

    def __init__(self, home: Path, market: Market | None = None) -> None:
        self.purse = Purse.create(home, passphrase="a passphrase of the tests")
        self.market = market or Market(self.purse)
        self.opened: list[int] = []
        self.confirmed: list[list[CheckedQuote]] = []

        async def reserve(_terms: object, _pays: int) -> int:
            return 2_000_000

        async def fees() -> ChainFees:
            return ChainFees(200_000, 230_000, 220_000, 40_000)

        async def opens(_terms: object, amount: int) -> OutRef:
            self.opened.append(amount)
            return OutRef(bytes([len(self.opened)]) * 32, 0)

        async def opens_all(wanted: Sequence[tuple[object, int]]) -> list[OutRef]:
            self.opened += [amount for _, amount in wanted]
            return [OutRef(bytes([len(self.opened)]) * 32, at) for at in range(len(wanted))]

        async def unseen(*_: object) -> None:
            raise ChannelUnknown("not in a block yet")

        till: Any = SimpleNamespace(
            chain=SimpleNamespace(magic=42), reserve=reserve, fees=fees, open=opens,
            open_all=opens_all, checked=unseen, look=unseen,
        )  # fmt: skip
        http: Any = self.market
        self.payers = Payers(self.purse.channels, "http://market", 42, http)
        self.runner = Runner(http, self.purse, till, self.payers)

    async def begin(self) -> None:
        """Posted, confirmed once, signed and opened; followed from then on."""

        async def confirm(offers: Any) -> bool:
            self.confirmed.append(list(offers))
            return True

        posted = await gang.post(self.runner, LoadedJob(SPEC, {}))
        assert await gang.agree(self.runner, posted, confirm)
        self.follows()

    def follows(self) -> None:
        """As :meth:`Runner.follow` does first."""
        for one in self.market.members:
            self.runner._jobs[one.id] = Followed(restored())

    async def looks(self, times: int = 4) -> None:
        for _ in range(times):
            for one in self.market.members:
                await self.runner._look(one.id, self.runner._jobs[one.id])

    def payer(self, one: Placed, lease: str = "") -> ChannelPayer:
        held = self.payers.held(one.leases[lease or one.view["lease"]].session_vk)
        assert held is not None
        return held

    async def bills(self, one: Placed, ms: int) -> None:
        """Its newest lease was served so long, by the payer's clock as well."""
        lease = one.view["lease"]
        held, terms = self.payer(one), one.leases[lease]
        known = held.book.leases[lease]
        since = (known.since_ms or 0) - ms  # no time passes in a test
        held.book = held.book.with_lease(replace(known, since_ms=since))
        adapter = next(seed(f"adapter-{n}") for n in range(99) if f"lease_{n}" == lease)
        await held.receipt(one.bills[lease].tick(terms, ms, adapter=adapter))

    def check(self) -> None:
        """What ended members cost and living ones may: never above what was agreed to."""
        total = 0
        for one in self.market.members:
            books = [
                known
                for held in self.payers.all
                for known in held.book.leases.values()
                if known.terms.job == one.id
            ]
            part = sum(
                known.approved if known.terms.lease in one.ended else known.cap for known in books
            )
            assert part <= one.spec.price.budget
            assert sum(known.cap for known in books) <= one.spec.price.budget
            total += part
        assert total <= BUDGET

    async def close(self) -> None:
        for held in self.payers.all:
            await held.let_go()


async def ran(rig: Rig, one: Placed, ms: int) -> None:
    await rig.payers.order(one.view["lease"], Verb.RUN)
    await rig.bills(one, ms)


def test_a_lost_member_is_signed_for_again_and_nobody_is_asked(tmp_path: Path) -> None:
    async def tell() -> None:
        rig = Rig(tmp_path)
        await rig.begin()
        members = rig.market.members
        for one in members:
            await ran(rig, one, 60_000)
        lost, first = members[1], members[1].view["lease"]
        spent = rig.runner.channels.spent(lost.id)
        assert spent > 0 and len(rig.opened) == MEMBERS
        rig.market.lose(lost)
        await rig.looks()
        second = lost.view["lease"]
        assert lost.view["state"] == "RUNNING" and second != first
        assert len(rig.confirmed) == 1 and len(rig.opened) == MEMBERS + 1
        held = rig.payer(lost)
        known = held.book.leases[second]
        assert known.cap == known.terms.ceiling == BUDGET // MEMBERS - spent
        assert held.session_vk != rig.payer(lost, first).session_vk
        assert rig.payer(lost, first).end_sent  # nobody else can serve it
        # It is ordered by its own key, from the first number on; the lost lease is no more.
        assert rig.payers.ordered(second) is None and known.orders is not None
        order = await rig.payers.order(second, Verb.MEET)
        assert order.verify(second, held.session_vk).version == 1
        with pytest.raises(NothingToOrder):
            await rig.payers.order(first, Verb.RUN)
        rig.check()
        await rig.close()

    anyio.run(tell)


def test_a_replacement_that_bills_before_it_is_ordered_to_run_is_not_paid(tmp_path: Path) -> None:
    async def tell() -> None:
        rig = Rig(tmp_path)
        await rig.begin()
        lost = rig.market.members[0]
        await ran(rig, lost, 1000)
        rig.market.lose(lost)
        await rig.looks()
        await rig.payers.order(lost.view["lease"], Verb.MEET)
        await rig.bills(lost, 1000)
        held = rig.payer(lost)
        assert held.book.stopped == "RECEIPT_UNORDERED" and held.book.signed == 0
        await rig.close()

    anyio.run(tell)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"ceiling": BUDGET // MEMBERS}, "budget"),
        ({"rate_micro": 10**12}, "rate"),
        ({"work": b"\x09" * 32}, "work"),
        ({"session_vk": b"\x09" * 32}, "key"),
        ({"max_duration_ms": 600_001}, "longer"),
        ({"expires_at_ms": 1}, "expired"),
        ({"consumer_vkh": b"\x09" * 28}, "refund"),
    ],
)
def test_a_new_quote_is_checked_as_the_first_one_was(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    """It is declined, as nobody is there to be asked: the market then ends the cluster."""

    async def tell() -> None:
        rig = Rig(tmp_path)
        await rig.begin()
        lost = rig.market.members[2]
        await ran(rig, lost, 60_000)
        rig.market.changes = changes
        rig.market.lose(lost)
        await rig.looks()
        assert lost.view["state"] == "ENDED" and lost.view["reason"] == "DECLINED"
        assert len(rig.opened) == MEMBERS and len(rig.confirmed) == 1
        assert len(rig.runner.channels.of(lost.id)) == 1
        await rig.close()

    anyio.run(tell)


def test_a_market_that_shows_another_job_after_a_restart_gets_no_larger_budget(
    tmp_path: Path,
) -> None:
    """A payer that begins anew reads the job from the market; its own books say what it was."""

    async def tell() -> None:
        rig = Rig(tmp_path)
        await rig.begin()
        lost = rig.market.members[0]
        await ran(rig, lost, 1000)
        rig.runner.agreements._specs.clear()
        rig.market.lose(lost)
        lost.spec = replace(lost.spec, price=Price(budget=100 * BUDGET))
        await rig.looks()
        assert lost.view["state"] == "ENDED" and len(rig.opened) == MEMBERS
        await rig.close()

    anyio.run(tell)


def test_a_market_that_has_a_key_already_is_looked_at_again(tmp_path: Path) -> None:
    async def tell() -> None:
        rig = Rig(tmp_path)
        await rig.begin()
        lost = rig.market.members[0]
        await ran(rig, lost, 1000)
        rig.market.lose(lost)
        rig.market.conflicts = 1
        before = len(rig.purse.sessions())
        await rig.looks(1)
        assert lost.view["state"] == "POSTED" and len(rig.purse.sessions()) == before
        await rig.looks()
        assert lost.view["state"] == "RUNNING" and len(rig.purse.sessions()) == before + 1
        await rig.close()

    anyio.run(tell)


def test_a_member_that_waits_for_a_place_is_not_forgotten_with_the_process(tmp_path: Path) -> None:
    """Its only channel is ending by then, and any other job of it would be over."""

    async def tell() -> None:
        rig = Rig(tmp_path)
        await rig.begin()
        lost, first = rig.market.members[0], rig.market.members[0].view["lease"]
        await ran(rig, lost, 1000)
        rig.market.lose(lost)
        rig.market.conflicts = 1  # no place yet
        await rig.looks(1)
        assert rig.payer(lost, first).final == {first} and rig.payer(lost, first).end_sent
        await rig.close()
        again = Rig(tmp_path, rig.market)
        held = await again.payers.take_all(again.purse.session)
        assert {job for one in held for job in unfinished(one)} == {
            one.id for one in rig.market.members
        }
        again.follows()
        await again.looks()
        assert lost.view["state"] == "RUNNING" and len(lost.leases) == 2
        again.check()
        await again.close()

    anyio.run(tell)


@pytest.mark.parametrize("dice", range(3))
def test_any_losses_cost_no_more_than_was_agreed_to(tmp_path: Path, dice: int) -> None:
    """Also where a lost provider comes back and bills on, and where this process begins anew."""

    async def tell() -> None:
        luck, rig, late = Random(dice), Rig(tmp_path), 0
        await rig.begin()
        for _ in range(30):
            one = luck.choice(rig.market.members)
            if one.view["state"] != "RUNNING":
                await rig.looks(1)
                continue
            await ran(rig, one, luck.choice([1000, 20_000, 90_000]))
            gone = luck.choice(list(one.leases))
            if gone in one.ended and gone in one.bills:  # it comes back, and bills on
                held, terms = rig.payer(one, gone), one.leases[gone]
                adapter = next(seed(f"adapter-{n}") for n in range(99) if f"lease_{n}" == gone)
                await held.receipt(one.bills[gone].tick(terms, 50_000, adapter=adapter))
                late += 1
            if luck.random() < 0.3 and len(one.leases) < 5:
                rig.market.lose(one)
            if luck.random() < 0.2:
                rig.follows()
                rig.runner.agreements._specs.clear()
            await rig.looks(luck.choice([1, 3]))
            rig.check()
        await rig.looks()
        rig.check()
        assert sum(len(one.leases) for one in rig.market.members) > MEMBERS + 3 and late
        assert all(one.view["state"] == "RUNNING" for one in rig.market.members)
        await rig.close()

    anyio.run(tell)


def test_no_cluster_is_paid_over_a_route() -> None:
    """Its orders are signed by the key of a channel of its own."""
    member = SPEC.members()[0]
    terms = terms_for(offer(), member)
    quote: Any = SimpleNamespace(terms=terms, route=SimpleNamespace())
    wanted: Any = SimpleNamespace(
        job="job_1", spec=member, magic=42, consumer_vkh=b"", session_vks={terms.session_vk},
        spent=0, hops={}, routed_only=False, works=frozenset(),
    )  # fmt: skip
    with pytest.raises(QuoteRefused, match="directly"):
        check(quote, wanted, 0)


def test_a_member_that_was_served_is_at_the_stage_of_any_other_job(tmp_path: Path) -> None:
    async def tell() -> None:
        rig = Rig(tmp_path)
        await rig.begin()
        await rig.looks(1)
        stages = [rig.runner._jobs[one.id].state.stage for one in rig.market.members]
        assert stages == [Stage.SERVED] * MEMBERS
        assert all(one.has_member for one in rig.payers.all)
        await rig.close()

    anyio.run(tell)
