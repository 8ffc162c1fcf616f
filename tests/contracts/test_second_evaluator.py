"""Two independent machines, one verdict and the same units: every step, and every refusal."""

from __future__ import annotations

import pytest

from tests.contracts.support import context as c
from tests.contracts.support.aiken import REWARD, SPEND, Refused, aiken, need_aiken, transaction
from tests.contracts.support.mutations import mutations, variants
from tests.contracts.support.scenes import ADA, TOKEN, Instance, controls, judge

pytestmark = pytest.mark.prove
INSTANCES = [pytest.param(i, id=i.name) for i in (ADA, TOKEN)]


def _units(instance: Instance, tx: c.Tx) -> dict[tuple[int, int], tuple[int, int]]:
    return aiken().evaluate(*transaction(instance, tx))


@pytest.mark.parametrize("instance", INSTANCES)
def test_units_agree_on_every_step(instance: Instance) -> None:
    need_aiken()
    accepted = {name: scene.tx() for name, scene in controls(instance).items()}
    accepted |= {
        label: change(accepted[name]) for label, (name, change) in variants(instance).items()
    }
    for name, tx in accepted.items():
        units = _units(instance, tx)
        ours = judge(instance, tx)
        assert units[REWARD, 0] == (ours.mem, ours.steps), name
        spending = c.constr(1, c.constr(0, c.octets(bytes(32)), c.integer(0)), c.maybe(None))
        stub = c.run(instance.scripts.stub_cbor, tx.context(spending, c.integer(0)))
        spent = {each for (purpose, _), each in units.items() if purpose == SPEND}
        assert spent == {(stub.mem, stub.steps)}, name


@pytest.mark.parametrize("instance", INSTANCES)
def test_refusals_agree(instance: Instance) -> None:
    need_aiken()
    tried = 0
    for mutation in mutations(instance):
        tx = mutation.change(controls(instance)[mutation.control].tx())
        tried += 1
        with pytest.raises(Refused) as refused:
            _units(instance, tx)
        # The script failed; a datum given by hash alone is refused before it runs.
        said = str(refused.value)
        assert said.startswith(("failed script execution", "missing required datum")), said
    assert tried >= 150
