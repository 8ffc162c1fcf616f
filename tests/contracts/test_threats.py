"""The threats of ``docs/security.md`` that the script answers, one named test each.

Every attack is written the way an attacker would: he chooses inputs, outputs and steps freely,
and the control beside it shows that only the attack is refused.

Over 400 lines: one page of threats, in the order of the page for auditors.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from marketplace.domain.money import channel as twin
from marketplace.domain.money.address import Credential
from marketplace.domain.money.channel_refusals import (
    ChannelRefused,
    ChannelUnfit,
    MayNotFinish,
    NotOpen,
    StepsLeft,
    TakeNotGrowing,
    VoucherNotSigned,
)
from marketplace.domain.money.voucher import voucher_message
from tests.contracts.support import context as c
from tests.contracts.support.mutations import channel_input, mutations, output
from tests.contracts.support.scenes import (
    ADA,
    NOW,
    PERIOD,
    TOKEN,
    Instance,
    Scene,
    adapter,
    address_data,
    channel,
    claim,
    consumer,
    controls,
    h28,
    judge,
    output_data,
    provider,
    session,
    stage_data,
    step_data,
)

BOTH = pytest.mark.parametrize("instance", [pytest.param(i, id=i.name) for i in (ADA, TOKEN)])
THIEF = c.address(c.key_credential(h28("thief")))


def refused(scene: Scene, guard: int) -> None:
    """Both the twin, naming *guard*, and the deployed bytes."""
    with pytest.raises(ChannelRefused) as caught:
        twin.settle(scene.judged())
    assert caught.value.guard == guard
    assert not judge(scene.instance, scene.tx()).ok


def accepted(scene: Scene) -> list[twin.Will]:
    assert judge(scene.instance, scene.tx()).ok
    return twin.settle(scene.judged())


def pair(instance: Instance, *, payout: int = 0) -> Scene:
    """Two claims of the same size; the second channel's provider is *payout*."""
    channels = [channel(0, instance=instance), channel(1, instance=instance, payout=payout)]
    return Scene(channels, [claim(0, 4_000_000), claim(1, 4_000_000)], instance=instance).laid_out()


# --- outputs counted twice ----------------------------------------------------------------------
@BOTH
def test_double_satisfaction_of_two_channels_by_one_output(instance: Instance) -> None:
    """Two channels alike but for their session keys must not be met by one continuing output."""
    scene = pair(instance)
    accepted(scene)
    refused(replace(scene, outputs=[scene.outputs[0], scene.outputs[2]]), 10)


@BOTH
def test_double_satisfaction_with_a_foreign_script(instance: Instance) -> None:
    """An output that some other contract counts as its own cannot be paid here: every
    script-locked input must be a channel with a step, so no foreign script runs beside us."""
    scene = pair(instance)
    tx = scene.tx()
    for datum in (None, c.inline(c.integer(7)), c.inline(c.constr(0))):
        foreign = c.Out(c.address(c.script_credential(h28("dex"))), {c.ADA: 9_000_000}, datum)
        beside = tx.with_(inputs=[*tx.inputs, c.In(b"\x77" * 32, 0, foreign)])
        assert not judge(instance, beside).ok
        spare = c.listing(*(step_data(s) for s in (*scene.steps, twin.Finish())))
        assert not judge(instance, beside.with_(redeemer=spare)).ok


@BOTH
def test_payout_shared_by_two_runs(instance: Instance) -> None:
    """A, B, A: two runs of provider A cannot be met by one output, however much it holds."""
    scene = controls(instance)["interleaved payouts"]
    accepted(scene)
    first, last = scene.outputs[1], scene.outputs[-1]
    rich = replace(last, held=first.held.plus(last.held.amount))
    refused(replace(scene, outputs=[*scene.outputs[:1], *scene.outputs[2:-1], rich]), 11)


@BOTH
def test_interleaved_payouts_are_each_paid(instance: Instance) -> None:
    scene = controls(instance)["interleaved payouts"]
    wills = accepted(scene)
    expected = [type(e).__name__ for e in twin.expect(wills)]
    assert expected == ["Continuing", "Payout", "Continuing", "Payout", "Continuing", "Payout"]
    for at, out in enumerate(scene.outputs):
        if out.stage is None:
            short = replace(out, held=out.held.plus(-1))
            refused(
                replace(scene, outputs=[*scene.outputs[:at], short, *scene.outputs[at + 1 :]]), 12
            )


@BOTH
def test_steps_and_outputs_permuted_in_a_mixed_batch(instance: Instance) -> None:
    """No order but the ledger's: every other arrangement of steps or outputs is refused."""
    scene = controls(instance)["every step"]
    accepted(scene)
    for i in range(len(scene.steps)):
        for j in range(i):
            steps = list(scene.steps)
            steps[i], steps[j] = steps[j], steps[i]
            assert not judge(instance, replace(scene, steps=steps).tx()).ok
    for i in range(len(scene.outputs)):
        for j in range(i):
            outputs = list(scene.outputs)
            outputs[i], outputs[j] = outputs[j], outputs[i]
            assert not judge(instance, replace(scene, outputs=outputs).tx()).ok


# --- what a continuing output may be -------------------------------------------------------------
@BOTH
def test_datum_hijacked_or_missing(instance: Instance) -> None:
    scene = controls(instance)["claim"]
    stage = scene.channels[0].stage
    mine = replace(stage.consts, consumer_vkh=h28("thief"))
    hijacked = c.inline(stage_data(twin.Open(mine, 4_000_000)))
    for datum in (hijacked, None, c.constr(1, c.octets(bytes(32)))):
        assert not judge(instance, output(0, lambda o, d=datum: replace(o, datum=d))(scene.tx())).ok


@BOTH
def test_reference_script_on_an_output(instance: Instance) -> None:
    """It would make every later step of the channel dearer."""
    for name, at in (("claim", 0), ("claim", 1), ("finish", 0), ("top up", 0), ("close", 0)):
        loaded = output(at, lambda o: replace(o, script=h28("script")))
        assert not judge(instance, loaded(controls(instance)[name].tx())).ok


@BOTH
def test_dust_tokens_cannot_be_put_into_a_channel_nor_freeze_it(instance: Instance) -> None:
    dust = (h28("dust"), b"dust")
    for name in ("claim", "top up", "close", "finish"):
        tx = controls(instance)[name].tx()
        out = tx.outputs[0]
        assert not judge(
            instance, output(0, lambda o: replace(o, value={**o.value, dust: 1}))(tx)
        ).ok
        # Dust that its opener locked in does not stop a step; it does not travel on either.
        dusty = channel_input(0, lambda o: replace(o, value={**o.value, dust: 5}))(tx)
        assert judge(instance, dusty).ok
        assert dust not in out.value


@BOTH
def test_stake_credential_theft(instance: Instance) -> None:
    for name in ("claim", "top up", "close", "finish", "finish expired"):
        scene = controls(instance)[name]
        where = scene.outputs[0].address
        for stake in (Credential(h28("thief")), None):
            stolen = address_data(replace(where, stake=stake))
            assert not judge(
                instance, output(0, lambda o, a=stolen: replace(o, address=a))(scene.tx())
            ).ok


@BOTH
def test_min_ada_at_close_and_refund(instance: Instance) -> None:
    """At a channel's capacity the reserve is still inside, for Close and for the refund."""
    reserve = 1_500_000
    each = channel(0, instance=instance, claimed=0)
    most = each.held.amount + each.stage.claimed - reserve
    claimed = Scene([each], [claim(0, most)], instance=instance).laid_out()
    left = accepted(claimed)[0].output
    assert isinstance(left, twin.Continuing)
    assert left.channel.held.amount == reserve
    closed = Scene([left.channel], [twin.Close()], [consumer(0)], None, NOW, instance).laid_out()
    after = accepted(closed)[0].output
    assert isinstance(after, twin.Continuing)
    assert after.channel.held == left.channel.held
    home = Scene([after.channel], [twin.Finish()], [], NOW + PERIOD, None, instance).laid_out()
    refund = accepted(home)[0].output
    assert isinstance(refund, twin.Refund)
    assert refund.held.amount == reserve
    if instance is TOKEN:
        assert refund.held.lovelace == each.held.lovelace


# --- vouchers -----------------------------------------------------------------------------------
@BOTH
def test_voucher_replayed_on_another_channel_network_or_version(instance: Instance) -> None:
    """A session key is one channel's, on one network, under one script; the tag is the
    version's.
    """
    scene = controls(instance)["claim"]
    foreign = {
        "another channel": claim(7, 4_000_000).signature,
        "another version": session(0).sign(b"tally/v0" + (4_000_000).to_bytes(8, "big")),
        "another amount": claim(0, 4_000_001).signature,
    }
    for signature in foreign.values():
        refused(replace(scene, steps=[twin.Claim(4_000_000, 4_000_000, signature)]), 8)


@BOTH
def test_voucher_replayed_on_the_same_channel(instance: Instance) -> None:
    scene = controls(instance)["claim"]
    after = accepted(scene)[0].output
    assert isinstance(after, twin.Continuing)
    again = replace(scene, channels=[after.channel])
    refused(again, 6)


def test_session_key_reused_is_seen_by_whoever_serves() -> None:
    """On chain a voucher works on every channel of its key: which is why payer and adapter refuse
    a key that they have ever seen (``session_vk`` is the channel's id and key of their stores)."""
    first, second = channel(0), replace(channel(0), held=twin.Held(9_000_000))
    scene = Scene([first, second], [claim(0, 4_000_000), claim(0, 4_000_000)]).laid_out()
    accepted(scene)  # the loss of whoever reuses a key
    assert first.stage.consts.session_vk == second.stage.consts.session_vk


@BOTH
def test_negative_and_overflowing_amounts(instance: Instance) -> None:
    """Nothing negative is taken, added or signed; nothing above 8 bytes."""
    labels = {
        "whole fee: take a negative": 6,
        "whole fee: take back": 6,
        "top up: that takes away": 16,
        "claim: cum above 8 bytes": 0,
    }
    found = {str(m): m for m in mutations(instance)}
    for label, guard in labels.items():
        mutation = found[label]
        assert mutation.guard == guard
        tx = mutation.change(controls(instance)[mutation.control].tx())
        assert not judge(instance, tx).ok
    most = 2**64 - 1
    rich = channel(0, instance=instance, amount=most, claimed=1)
    accepted(Scene([rich], [claim(0, most)], instance=instance).laid_out())
    negative = Scene([rich], [twin.Claim(-1, -1, session(0).sign(bytes(16)))], instance=instance)
    assert not judge(instance, negative.tx()).ok


@BOTH
def test_wrong_key_lengths(instance: Instance) -> None:
    scene = controls(instance)["claim"]
    stage = scene.channels[0].stage
    for key in (b"", session(0).verify_key[:31], session(0).verify_key + b"\0"):
        short = replace(stage, consts=replace(stage.consts, session_vk=key))
        refused(replace(scene, channels=[replace(scene.channels[0], stage=short)]), 0)
    for signature in (b"", bytes(63), bytes(65)):
        refused(replace(scene, steps=[twin.Claim(4_000_000, 4_000_000, signature)]), 0)


# --- the transaction ----------------------------------------------------------------------------
@BOTH
def test_many_withdrawals(instance: Instance) -> None:
    scene = controls(instance)["claim"]
    refused(replace(scene, withdrawals=2), 4)
    refused(replace(scene, withdrawals=3), 4)


@BOTH
def test_nonzero_reward_balance_is_no_obstacle(instance: Instance) -> None:
    """Anybody can have a deposit returned to settle's account; the ledger wants all of it out."""
    tx = controls(instance)["claim"].tx()
    settle = c.script_credential(instance.scripts.settle_hash)
    for balance in (1, 10**12):
        assert judge(instance, tx.with_(withdrawals=[(settle, balance)])).ok


@BOTH
def test_infinite_bounds(instance: Instance) -> None:
    refused(replace(controls(instance)["close"], upper_ms=None), 0)
    refused(replace(controls(instance)["finish expired"], lower_ms=None), 0)
    # The adapter needs no bound at all.
    accepted(controls(instance)["finish closing"])


@BOTH
def test_off_by_one_slot(instance: Instance) -> None:
    expired = controls(instance)["finish expired"]
    accepted(expired)
    for early in (1, 1000):
        refused(replace(expired, lower_ms=NOW - early), 18)
    close = controls(instance)["close"]
    for shift in (-1000, -1, 1, 1000):
        refused(replace(close, upper_ms=NOW + shift), 10)


@BOTH
def test_top_up_spam_cannot_delay_an_end(instance: Instance) -> None:
    """The consumer may contend an Open channel, where the provider has no deadline; once Closing,
    where it has one, nobody but a claimer or the adapter can move it before expire_at."""
    closing = channel(0, instance=instance, expire_at_ms=NOW)
    for step in (twin.TopUp(1), twin.Close()):
        scene = Scene([closing], [step], [consumer(0)], None, NOW, instance)
        with pytest.raises(NotOpen):
            scene.laid_out()
        assert not judge(instance, scene.tx()).ok
    stranger = Scene([closing], [twin.Finish()], [consumer(0)], NOW - 1000, None, instance)
    with pytest.raises(MayNotFinish):
        stranger.laid_out()


# --- who may end a channel ----------------------------------------------------------------------
@BOTH
def test_old_voucher_in_a_strangers_finish_before_expiry(instance: Instance) -> None:
    """It would end the channel with less than the provider earned."""
    for stage in (None, NOW):
        each = channel(0, instance=instance, expire_at_ms=stage)
        old = twin.Finish(claim(0, 1_000_001))
        by_adapter = Scene([each], [old], [adapter(0)], NOW - 1, None, instance).laid_out()
        accepted(by_adapter)
        refused(replace(by_adapter, signers=[h28("stranger"), consumer(0)]), 18)


@BOTH
def test_old_voucher_in_a_strangers_claim_does_no_harm(instance: Instance) -> None:
    """It pays the provider what it paid for, and the later voucher still takes the rest."""
    each = channel(0, instance=instance)
    scene = Scene([each], [claim(0, 2_000_000)], [h28("stranger")], instance=instance).laid_out()
    after = accepted(scene)[0].output
    assert isinstance(after, twin.Continuing)
    later = Scene([after.channel], [claim(0, 4_000_000)], instance=instance).laid_out()
    total = sum(accepted(s)[0].taken for s in (scene, later))
    assert total == 3_000_000


@BOTH
def test_strangers_finish_after_expiry_cannot_pay_the_wrong_place(instance: Instance) -> None:
    scene = controls(instance)["finish expired"]
    accepted(scene)
    assert not judge(instance, output(0, lambda o: replace(o, address=THIEF))(scene.tx())).ok
    less = replace(scene.outputs[0], held=scene.outputs[0].held.plus(-1))
    refused(replace(scene, outputs=[less]), 10)
    taking = controls(instance)["finish expired claiming"]
    accepted(taking)
    assert not judge(instance, output(1, lambda o: replace(o, address=THIEF))(taking.tx())).ok


# --- fees ---------------------------------------------------------------------------------------
@BOTH
def test_fee_bps_of_10000_takes_only_from_its_own_channel(instance: Instance) -> None:
    """All of its own diff is bounty; a fee above that would eat the others' payout, and is
    refused.
    """
    channels = [channel(0, instance=instance), channel(1, instance=instance, fee_bps=10_000)]
    steps = [claim(0, 4_000_000), claim(1, 4_000_000)]
    scene = Scene(channels, steps, instance=instance).laid_out()
    honest, greedy = accepted(scene)
    assert (honest.pay, greedy.pay) == (2_985_000, 0)
    worse = channel(1, instance=instance, fee_bps=20_000)
    outputs = [
        scene.outputs[0],
        replace(
            scene.outputs[1],
            stage=replace(scene.outputs[1].stage or worse.stage, consts=worse.stage.consts),
        ),
        scene.outputs[2],
    ]
    refused(replace(scene, channels=[channels[0], worse], outputs=outputs), 9)


# --- parties ------------------------------------------------------------------------------------
@BOTH
def test_one_voucher_shown_to_two_adapters(instance: Instance) -> None:
    """Only the channel's own payout is ever paid: to a second adapter the voucher is worth nothing,
    and ``check_channel`` refuses a channel whose constants are not those of its own terms."""
    each = channel(0, instance=instance)
    scene = Scene([each], [claim(0, 4_000_000)], instance=instance).laid_out()
    other = output_data(instance, replace(scene.outputs[1], address=provider(1)))
    assert not judge(instance, output(1, lambda _: other)(scene.tx())).ok
    theirs = replace(each.stage.consts, adapter_vkh=adapter(1), payout=provider(1).payout())
    with pytest.raises(ChannelUnfit):
        twin.check_channel(each, each.address, theirs, 1)


@BOTH
def test_batch_that_hides_a_second_step_under_one_signature(instance: Instance) -> None:
    """One signature does authorise every step of a transaction, so whoever signs must decode all:
    the twin lists each of them from the transaction alone."""
    mine = [channel(0, instance=instance), replace(channel(1, instance=instance))]
    both = [
        replace(x, stage=replace(x.stage, consts=replace(x.stage.consts, consumer_vkh=consumer(0))))
        for x in mine
    ]
    scene = Scene(
        both, [twin.TopUp(5), twin.Close()], [consumer(0)], None, NOW, instance
    ).laid_out()
    wills = accepted(scene)
    stages = [type(w.output.channel.stage) for w in wills if isinstance(w.output, twin.Continuing)]
    assert stages == [twin.Open, twin.Closing]


@BOTH
def test_batch_poisoned_by_one_bad_channel(instance: Instance) -> None:
    """One bad channel refuses the batch; the twin says which, and the rest goes through without
    it.
    """
    good = [channel(n, instance=instance) for n in range(3)]
    steps: list[twin.Step] = [claim(n, 4_000_000) for n in range(3)]
    steps[1] = replace(claim(1, 4_000_000), signature=bytes(64))
    with pytest.raises(VoucherNotSigned):
        Scene(good, steps, instance=instance).laid_out()
    without = Scene([good[0], good[2]], [steps[0], steps[2]], instance=instance).laid_out()
    accepted(without)


# --- races and rollbacks, as the script sees them ------------------------------------------------
@BOTH
def test_claim_raced_by_another_claim(instance: Instance) -> None:
    """The lower voucher, arriving later, is refused; arriving first, it costs nobody anything."""
    each = channel(0, instance=instance)
    high = Scene([each], [claim(0, 4_000_000)], instance=instance).laid_out()
    after = accepted(high)[0].output
    assert isinstance(after, twin.Continuing)
    low = Scene([after.channel], [claim(0, 3_000_000)], instance=instance)
    with pytest.raises(TakeNotGrowing):
        low.laid_out()
    assert not judge(instance, low.tx()).ok


@BOTH
def test_claim_raced_by_close(instance: Instance) -> None:
    """The same voucher claims from the Closing channel, and does not stop the clock."""
    close = controls(instance)["close"]
    after = accepted(close)[0].output
    assert isinstance(after, twin.Continuing)
    late = Scene([after.channel], [claim(0, 4_000_000)], instance=instance).laid_out()
    left = accepted(late)[0].output
    assert isinstance(left, twin.Continuing)
    assert isinstance(left.channel.stage, twin.Closing)
    assert left.channel.stage.expire_at_ms == NOW + PERIOD


@BOTH
def test_rollback_of_a_claim_or_top_up(instance: Instance) -> None:
    """The older state is back, and the voucher that was claimed there works there again."""
    each = channel(0, instance=instance)
    top_up = Scene([each], [twin.TopUp(5_000_000)], [consumer(0)], instance=instance).laid_out()
    grown = accepted(top_up)[0].output
    assert isinstance(grown, twin.Continuing)
    voucher = claim(0, 4_000_000)
    for state in (grown.channel, each):  # claimed, rolled back past the top-up, claimed again
        accepted(Scene([state], [voucher], instance=instance).laid_out())


def test_rollback_of_an_open_leaves_nothing_to_claim() -> None:
    """A voucher is worth what stands on the chain: without the channel there is no input, and a
    transaction with a step for it is refused."""
    scene = Scene([], [claim(0, 4_000_000)])
    with pytest.raises(StepsLeft):
        twin.settle(scene.judged())
    assert not judge(ADA, scene.tx()).ok


def test_a_voucher_is_16_bytes_and_nothing_else_is() -> None:
    assert voucher_message(5) == b"tally/v1" + bytes(7) + b"\x05"
