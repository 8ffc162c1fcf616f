"""One healthy transaction for each step and mix: the deployed bytes and the twin both accept."""

from __future__ import annotations

import pytest

from marketplace.domain.money import channel as twin
from tests.contracts.support import context as c
from tests.contracts.support.mutations import variants
from tests.contracts.support.scenes import ADA, TOKEN, Instance, controls, judge

INSTANCES = [pytest.param(i, id=i.name) for i in (ADA, TOKEN)]


@pytest.mark.parametrize("instance", INSTANCES)
@pytest.mark.parametrize("name", controls(ADA))
def test_accepted(instance: Instance, name: str) -> None:
    scene = controls(instance)[name]
    assert judge(instance, scene.tx()).ok
    assert len(twin.settle(scene.judged())) == len(scene.channels)


@pytest.mark.parametrize("instance", INSTANCES)
@pytest.mark.parametrize("label", variants(ADA))
def test_harmless_variants_are_accepted(instance: Instance, label: str) -> None:
    name, change = variants(instance)[label]
    tx = controls(instance)[name].tx()
    changed = change(tx)
    assert changed != tx
    assert judge(instance, changed).ok


@pytest.mark.parametrize("instance", INSTANCES)
def test_stub_wants_settle_first(instance: Instance) -> None:
    tx = controls(instance)["claim"].tx()
    stub = instance.scripts.stub_cbor
    spending = c.constr(1, tx.inputs[0].data(), c.maybe(None))
    assert c.run(stub, tx.context(spending, c.integer(0))).ok
    other = (c.script_credential(bytes(28)), 0)
    key = (c.key_credential(instance.scripts.settle_hash), 0)
    for withdrawals in ([], [other], [other, *tx.withdrawals], [key]):
        refused = tx.with_(withdrawals=withdrawals)
        assert not c.run(stub, refused.context(spending, c.integer(0))).ok


def test_hand_written_claim() -> None:
    """The control that owes nothing to the twin: every amount below was added up by hand."""
    scene = controls(ADA)["claim"]
    before, after, paid = scene.channels[0], scene.outputs[0], scene.outputs[1]
    assert before.held.lovelace == 50_000_000
    assert before.stage.claimed == 1_000_000
    assert after.held.lovelace == 47_000_000  # 3 ADA taken
    assert after.stage == twin.Open(before.stage.consts, 4_000_000)
    assert paid.held.lovelace == 2_985_000  # less 50 bps
