"""Settle as anything but a withdrawal: registration and delegation pass, all else is refused."""

from __future__ import annotations

import pytest

from contracts.channel.terms import Build
from tests.contracts.support import context as c
from tests.contracts.support.scenes import ADA, TOKEN, Instance, controls

INSTANCES = [pytest.param(i, id=i.name) for i in (ADA, TOKEN)]
# Tags of TxCert in a V3 context.
REGISTER, DEREGISTER, DELEGATE, REGISTER_AND_DELEGATE = 0, 1, 2, 3
OTHERS = [DEREGISTER, 4, 5, 6, 7, 8, 9, 10]


def _run(instance: Instance, purpose: c.Data, build: Build | None = None) -> c.Verdict:
    tx = controls(instance)["claim"].tx()
    return c.run(instance.settle(build), tx.context(purpose, c.integer(0)))


def _certificate(instance: Instance, tag: int) -> c.Data:
    credential = c.script_credential(instance.scripts.settle_hash)
    return c.constr(3, c.integer(0), c.constr(tag, credential, c.constr(1)))


@pytest.mark.parametrize("instance", INSTANCES)
@pytest.mark.parametrize("tag", [REGISTER, DELEGATE, REGISTER_AND_DELEGATE])
def test_registration_and_delegation_pass(instance: Instance, tag: int) -> None:
    assert _run(instance, _certificate(instance, tag)).ok


@pytest.mark.parametrize("instance", INSTANCES)
@pytest.mark.parametrize("tag", OTHERS)
def test_deregistration_and_other_certificates_are_refused(instance: Instance, tag: int) -> None:
    purpose = _certificate(instance, tag)
    assert not _run(instance, purpose).ok
    assert _run(instance, purpose, Build(traces=True)).trace == ("02",)
    assert _run(instance, purpose, Build(drop=frozenset({2}))).ok


@pytest.mark.parametrize("instance", INSTANCES)
def test_other_purposes_are_refused(instance: Instance) -> None:
    policy = c.octets(instance.scripts.settle_hash)
    reference = c.constr(0, c.octets(bytes(32)), c.integer(0))
    voter = c.constr(1, c.script_credential(instance.scripts.settle_hash))
    procedure = c.constr(0, c.integer(0), c.constr(1, c.constr(1)), c.constr(6))
    purposes = {
        "minting": c.constr(0, policy),
        "spending": c.constr(1, reference, c.maybe(c.integer(0))),
        "spending without datum": c.constr(1, reference, c.maybe(None)),
        "voting": c.constr(4, voter),
        "proposing": c.constr(5, c.integer(0), procedure),
        "of the future": c.constr(6, reference),
    }
    for name, purpose in purposes.items():
        assert not _run(instance, purpose).ok, name
        assert _run(instance, purpose, Build(traces=True)).trace == ("01",), name
    # Without guard 1 a spending purpose would be read as a certificate of registration.
    assert _run(instance, purposes["spending"], Build(drop=frozenset({1}))).ok
