"""What is served on a channel before a block holds it: granted, used up, lost, and bounded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from adapter.core import before_block
from adapter.core.decide import wake
from adapter.core.events import Examine, OpenNotTaken, OpenTaken, OpenVoid, Outcome, Passed
from adapter.core.state import Channel, Own, PauseCause
from adapter.core.wish import Wish
from adapter.core.young import Loss
from adapter.journal.journal import Journal
from marketplace.domain.keys import Signer
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.terms import SignedTerms
from marketplace.domain.protocol import wire
from marketplace.domain.work.lease import EndReason, LeaseState
from tests.unit.support.adapter import (
    ADAPTER,
    OTHER_SESSION,
    SESSION,
    Bench,
    core_job,
    gpu_job,
    offer,
)

ALLOWANCE = 500_000
MINUTE = 120_000  # lovelace that the bench's lease costs in 60 s
TX = "ab" * 32
MINE = frozenset({b"\x14" * 28, b"a transaction"})


class Young(Bench):
    """A bench whose consumers hand their opens over."""

    def __init__(self, allowance: int = ALLOWANCE) -> None:
        super().__init__(own=Own(offer(allowance=allowance), ADAPTER))

    def hand(self, lease: str = "lease_1", session: Signer = SESSION, tx: str = TX) -> Outcome:
        held = self.lease(lease).signed
        both = SignedTerms(held.body, held.adapter_signature, session.sign(held.body))
        return self.hear(wire.LeaseSigned(lease, both, tx, {}, b"the bytes"))

    def taken(self, session: Signer = SESSION, marks: frozenset[bytes] = MINE) -> Outcome:
        return self.do(OpenTaken(session.verify_key, self.capacity, marks))

    def handed(self) -> Young:
        self.propose()
        self.hand()
        return self

    def begun(self) -> Young:
        """Its workload runs, and no block holds the channel."""
        self.handed().taken()
        self.start()
        return self

    def used_up(self) -> Young:
        """Served and paid until the allowance is used."""
        while self.lease().state is LeaseState.ACTIVE:
            self.tick()
        return self

    @property
    def channel(self) -> Channel:
        return self.state.channels[SESSION.verify_key]

    def codes(self) -> list[str]:
        """Why leases wait for a block."""
        told = [m for m in self.sent() if isinstance(m, wire.LeaseProgress)]
        return [str(m.detail["code"]) for m in told if m.stage == "OPEN_WAITS"]

    def end(self) -> tuple[EndReason | None, str]:
        return self.lease().reason, self.lease().message


def examined(outcome: Outcome) -> list[Examine]:
    return [one for one in outcome.effects if isinstance(one, Examine)]


# ---- served, and by how much ---------------------------------------------------------------------


def test_a_handed_open_is_examined_and_its_lease_begins_without_a_block() -> None:
    bench = Young()
    bench.propose()
    assert examined(bench.hand()) == [Examine(SESSION.verify_key, b"the bytes")]
    assert bench.lease().wish is Wish.WAIT  # nothing is served on bytes that nobody judged
    bench.taken()
    assert bench.lease().wish is Wish.RUN
    assert bench.channel.limit == MINUTE


def test_the_allowance_is_served_to_the_lovelace_then_it_pauses_unbilled_until_a_block() -> None:
    bench = Young().begun().used_up()
    assert MINUTE - bench.lease().terms.tick_owed() < bench.channel.owed <= MINUTE
    assert bench.lease().pause is PauseCause.DEPTH
    before = bench.channel.owed
    bench.tick(ms=60_000)
    assert bench.channel.owed == before
    bench.sight(limit=2_000_000)  # the first block
    assert bench.lease().state is LeaseState.ACTIVE
    assert bench.channel.limit == 2_000_000 and not before_block.waiting(bench.state)


def test_no_block_for_180_s_after_the_allowance_ends_the_lease() -> None:
    bench = Young().begun().used_up()
    for _ in range(18):
        bench.boot_ms += 10_000
        bench.sight(limit=0)
        bench.do(Passed())
    assert bench.lease().reason is None
    bench.boot_ms += 1_000
    bench.do(Passed())
    reason, message = bench.end()
    assert reason is EndReason.CHANNEL_REFUSED and message.startswith("OPEN_LATE: ")
    assert bench.channel.owed <= MINUTE


@pytest.mark.parametrize(
    ("allowance", "granted"),
    [(ALLOWANCE, MINUTE), (50_000, 50_000), (2_001, 2_001)],
)
def test_it_is_a_minute_of_the_lease_at_most_what_the_owner_said(
    allowance: int, granted: int
) -> None:
    bench = Young(allowance).handed()
    bench.taken()
    assert bench.channel.limit == granted


def test_an_owner_that_allows_nothing_or_less_than_a_tick_waits_for_a_block() -> None:
    for allowance, code in ((0, "ALLOWANCE_NONE"), (2_000, "ALLOWANCE_SPENT")):
        bench = Young(allowance)
        bench.propose()
        assert not examined(bench.hand()) and bench.codes() == [code]
        bench.taken()  # whoever says so all the same
        assert bench.lease().wish is Wish.WAIT
        bench.sight()
        assert bench.lease().wish is Wish.RUN


def test_what_does_not_pass_waits_for_a_block_and_its_consumer_is_told_why() -> None:
    bench = Young().handed()
    bench.do(OpenNotTaken(SESSION.verify_key, "OPEN_YOUNG", "an input is 2 blocks deep"))
    assert bench.codes() == ["OPEN_YOUNG"] and bench.lease().wish is Wish.WAIT
    bench.sight()
    assert bench.lease().wish is Wish.RUN and bench.channel.young is None


def test_a_market_that_withholds_the_bytes_delays_the_lease_and_nothing_else() -> None:
    bench = Young()
    bench.propose()
    assert not examined(bench.sign()) and bench.lease().wish is Wish.WAIT
    bench.sight()
    assert bench.lease().wish is Wish.RUN


def test_a_block_that_comes_before_the_judgement_needs_no_allowance() -> None:
    bench = Young().handed()
    bench.sight()
    bench.taken()
    assert bench.channel.young is None and bench.channel.limit == bench.capacity


# ---- double-spent, rolled back -------------------------------------------------------------------


def test_a_void_open_ends_its_lease_with_the_reason_and_is_a_loss() -> None:
    bench = Young().begun()
    for _ in range(5):
        bench.tick()
    bench.do(OpenVoid(SESSION.verify_key, "another transaction spent its inputs"))
    assert bench.end() == (
        EndReason.CHANNEL_REFUSED, "OPEN_VOID: another transaction spent its inputs"
    )  # fmt: skip
    assert bench.lease().hard  # nothing more is given away
    (lost,) = bench.state.losses
    assert lost.wall_ms == bench.now.wall_ms
    assert bench.channel.owed <= lost.lovelace <= bench.channel.owed + 2_001
    bench.do(OpenVoid(SESSION.verify_key, "said twice"))
    assert len(bench.state.losses) == 1


def test_a_void_open_of_which_nothing_was_served_is_no_loss() -> None:
    bench = Young().handed()
    bench.taken()
    bench.do(OpenVoid(SESSION.verify_key, "its time to live passed"))
    assert not bench.state.losses


def test_a_rollback_leaves_the_allowance_and_counts_as_out_again() -> None:
    bench = Young().begun()
    bench.sight(limit=2_000_000)
    assert not before_block.waiting(bench.state)
    bench.sight(limit=0)
    assert bench.channel.limit == MINUTE and before_block.waiting(bench.state) == [bench.channel]
    assert bench.tick() and bench.lease().state is LeaseState.ACTIVE
    bench.used_up()
    for _ in range(30):  # a fork is an ordinary thing: its payer's bytes are sent again
        bench.boot_ms += 10_000
        bench.sight(limit=0)
        bench.do(Passed())
    assert bench.lease().reason is None


# ---- bounds --------------------------------------------------------------------------------------


def another(n: int) -> Signer:
    return Signer(n.to_bytes(2) + bytes(30))


def test_one_open_at_a_time_for_an_owner_and_for_a_funding_transaction() -> None:
    """Two consumer keys whose channels are opened, or whose money came, by one transaction."""
    bench = Young().handed()
    bench.taken(marks=frozenset({b"owner", b"parent", b"open"}))
    for n, marks in enumerate(({b"owner", b"x"}, {b"y", b"parent"}, {b"z", b"open"})):
        lease, other = f"lease_{n + 2}", another(n + 10)
        bench.propose(core_job(), lease, other, consumer_vkh=bytes([n + 1]) * 28)
        bench.hand(lease, other, f"{n + 1:02}" * 32)
        bench.taken(other, frozenset(marks))
        assert bench.lease(lease).wish is Wish.WAIT
    assert bench.codes() == ["ALLOWANCE_TAKEN"] * 3


def test_one_consumer_key_is_trusted_once_at_a_time_and_is_not_even_looked_at() -> None:
    bench = Young().handed()
    bench.taken()
    bench.propose(core_job(), "lease_2", another(9))
    assert not examined(bench.hand("lease_2", another(9), "cd" * 32))
    assert bench.codes() == ["ALLOWANCE_TAKEN"]


def many(bench: Young, count: int, allowance: int) -> int:
    """How many of *count* opens of strangers are trusted at once, by the rule alone."""
    state, own = (
        bench.state,
        replace(bench.own, offer=replace(bench.own.offer, allowance=allowance)),
    )
    template, terms = bench.channel, bench.lease().terms
    trusted = 0
    for n in range(count):
        marks = frozenset({n.to_bytes(2)})
        found = before_block.allowance(state, own, terms, marks, bench.now)
        if not isinstance(found, int):
            continue
        trusted += 1
        vk = another(n + 100).verify_key
        made = before_block.begin(replace(template, session_vk=vk, young=None), found, marks)
        state = state.with_channel(made)
    return trusted


def test_a_flood_of_opens_is_bounded_in_money_and_in_number() -> None:
    bench = Young().handed()
    assert many(bench, 100, 100_000) == before_block.OUT_TIMES
    assert many(bench, 100, ALLOWANCE) == before_block.MOST_OUT  # a minute is 0.12 ADA of 5


def lost(bench: Young, *ages_ms: int, lovelace: int = 1) -> Young:
    losses = tuple(Loss(bench.now.wall_ms - age, lovelace) for age in ages_ms)
    bench.state = replace(bench.state, losses=losses)
    return bench


@pytest.mark.parametrize(
    ("ages", "granted"),
    [((), 100_000), ((1,), 50_000), ((1, 2), 25_000), ((1, before_block.DAY_MS), 50_000)],
)
def test_a_loss_halves_the_allowance_for_a_day(ages: tuple[int, ...], granted: int) -> None:
    bench = lost(Young(100_000), *ages).handed()
    bench.taken()
    assert bench.channel.limit == granted


def test_three_losses_turn_it_off_for_a_day() -> None:
    bench = lost(Young(), 1, 2, before_block.DAY_MS - 1)
    bench.propose()
    assert not examined(bench.hand()) and bench.codes() == ["ALLOWANCE_OFF"]
    bench = lost(Young(), 1, 2, before_block.DAY_MS)
    bench.propose()
    assert examined(bench.hand())


def test_what_was_lost_in_a_day_and_what_is_out_stay_under_the_days_limit() -> None:
    bench = lost(Young(100_000), 1, lovelace=20 * 100_000 - 3_000).handed()
    bench.taken()
    assert bench.channel.limit == 3_000
    bench = lost(Young(100_000), 1, lovelace=20 * 100_000)
    bench.propose()
    assert not examined(bench.hand()) and bench.codes() == ["ALLOWANCE_SPENT"]


# ---- kill -9 -------------------------------------------------------------------------------------


def test_what_was_granted_and_lost_outlives_a_kill(tmp_path: Path) -> None:
    bench, journal = Young().begun(), Journal(tmp_path / "journal.db")
    journal.write(Outcome(bench.state))
    journal.close()
    journal = Journal(tmp_path / "journal.db")
    state = wake(journal.load(), bench.now)
    assert state.channels == bench.state.channels and before_block.waiting(state)
    bench.state = state
    voided = bench.do(OpenVoid(SESSION.verify_key, "gone"))
    assert voided.durable
    journal.write(voided)
    journal.close()
    journal = Journal(tmp_path / "journal.db")
    found = journal.load()
    assert found.losses == bench.state.losses and len(found.losses) == 1
    assert found.channels[SESSION.verify_key].young == bench.channel.young
    journal.close()


def test_it_is_durable_before_anything_is_served() -> None:
    bench = Young().handed()
    assert bench.taken().durable  # the daemon writes it before it drives


def test_a_void_channel_is_forgotten_in_time_and_its_key_is_never_good_again() -> None:
    bench = Young().begun()
    bench.tick()
    bench.do(OpenVoid(SESSION.verify_key, "gone"))
    bench.exit()
    bench.clear()
    bench.boot_ms += 40_000
    bench.do(Passed())
    assert "lease_1" not in bench.state.leases
    assert bench.channel.stage is ChannelStage.ENDED
    bench.boot_ms += bench.own.limits.linger_ms
    bench.do(Passed())
    assert not bench.state.channels and SESSION.verify_key in bench.state.past.keys
    bench.propose(gpu_job(), lease="lease_2")
    assert isinstance(bench.sent()[-1], wire.LeaseDeclined)


def test_an_allowance_is_for_all_leases_of_its_channel_together() -> None:
    """Whoever paid before may run several; before a block they share one allowance, to a tick."""
    bench = Young(50)
    bench.propose(core_job(), "lease_0", OTHER_SESSION)
    bench.sign("lease_0", OTHER_SESSION, "cd" * 32)
    bench.sight(OTHER_SESSION)
    bench.start("lease_0")
    for _ in range(20):
        bench.tick("lease_0", pay=False)
        bench.pay(session=OTHER_SESSION)
    bench.exit("lease_0")
    bench.clear("lease_0")
    bench.pay(session=OTHER_SESSION)
    leases = ("lease_1", "lease_2", "lease_3")
    for lease in leases:
        bench.propose(core_job(), lease)
        bench.hand(lease)
    bench.taken()
    begun = [one for one in leases if bench.lease(one).wish is Wish.RUN]
    tick = bench.lease().terms.tick_owed()
    assert begun and len(begun) * tick <= bench.channel.limit == 50


@pytest.mark.parametrize("tx", ["zz", "ab", "ab" * 33, "é" * 64])
def test_a_market_that_names_no_transaction_ends_a_lease_and_not_the_adapter(tx: str) -> None:
    for withheld in (False, True):
        bench = Young()
        bench.propose()
        bench.sign(tx=tx) if withheld else bench.hand(tx=tx)
        assert bench.stages()[-1] == "FINISHED" and not bench.state.channels
