"""Mutants of the validator's source: each is one edit of ``settle.py``, and each is killed.

A mutant survives if it accepts every control, refuses every mutation and judges every certificate
as the deployed script does.  ``killer`` names what gives it away, so that a test that stops killing
it is seen at once.  Dropping each numbered guard is a mutant as well: ``test_mutations.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
import uplc
from uplc import ast as u

from contracts.channel import settle as source
from contracts.channel.compiler import flat
from tests.contracts.support import context as c
from tests.contracts.support.mutants import MUTANTS, Mutant
from tests.contracts.support.mutations import mutations, variants
from tests.contracts.support.scenes import ADA, TOKEN, Instance, controls

SOURCE = Path(source.__file__).read_text(encoding="utf-8")


def _module(mutant: Mutant) -> ModuleType:
    assert SOURCE.count(mutant.old) == 1, mutant.old
    module = ModuleType("settle_mutant")
    sys.modules["settle_mutant"] = module  # dataclasses look their module up
    exec(compile(SOURCE.replace(mutant.old, mutant.new), "settle_mutant", "exec"), module.__dict__)
    return module


def _settle(module: ModuleType, instance: Instance) -> bytes:
    if instance.unit is None:
        return flat(module.settle(module.Ada()))
    program = uplc.unflatten(flat(module.settle(module.Token())))
    applied: bytes = uplc.flatten(
        uplc.tools.apply(program, *(u.PlutusByteString(x) for x in instance.unit))
    )
    return applied


def _judged(script: bytes, instance: Instance, what: str) -> bool:
    """Whether *script* judges *what* (a control, a mutation or a certificate) as it should."""
    scenes = controls(instance)
    credential = c.script_credential(instance.scripts.settle_hash)
    kind, _, label = what.partition(": ")
    if kind == "certificate":
        purpose = c.constr(3, c.integer(0), c.constr(int(label), credential, c.constr(1)))
        tx = scenes["claim"].tx()
        return c.run(script, tx.context(purpose)).ok == (int(label) in (0, 2, 3))
    if kind == "accepts":
        return c.run(script, scenes[label].tx().context(c.rewarding(credential))).ok
    if kind == "variant":
        name, change = variants(instance)[label]
        return c.run(script, change(scenes[name].tx()).context(c.rewarding(credential))).ok
    mutation = next(m for m in mutations(instance) if str(m) == what)
    tx = mutation.change(scenes[mutation.control].tx())
    return not c.run(script, tx.context(c.rewarding(credential))).ok


def everything(instance: Instance) -> list[str]:
    """All that a mutant is asked."""
    certificates = [f"certificate: {tag}" for tag in range(5)]
    accepted = [
        *(f"accepts: {x}" for x in controls(instance)),
        *(f"variant: {x}" for x in variants(instance)),
    ]
    return [*accepted, *certificates, *map(str, mutations(instance))]


def killer_of(mutant: Mutant) -> str | None:
    """The first question that gives *mutant* away (used to write the table)."""
    module = _module(mutant)
    for instance in (ADA, TOKEN):
        script = _settle(module, instance)
        for what in everything(instance):
            if not _judged(script, instance, what):
                return f"{instance.name}, {what}"
    return None


@pytest.mark.prove
@pytest.mark.parametrize("mutant", [pytest.param(m, id=str(m)) for m in MUTANTS])
def test_killed(mutant: Mutant) -> None:
    name, _, what = mutant.killer.partition(", ")
    instance = {"ada": ADA, "token": TOKEN}[name]
    assert _judged(_settle(source, instance), instance, what)
    assert not _judged(_settle(_module(mutant), instance), instance, what)


def test_there_are_enough() -> None:
    assert len(MUTANTS) >= 30
    assert len({(m.old, m.new) for m in MUTANTS}) == len(MUTANTS)
