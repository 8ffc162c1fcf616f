"""To whom a volume's content is sealed is what its owner signed, and not what a market says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from marketplace.client.sdk.job import Job
from marketplace.client.sdk.volume import VolumeUnproven, exported, imported
from marketplace.client.wallet.purse import Purse
from marketplace.domain.keys import Signer
from marketplace.domain.money.terms import SignedTerms
from marketplace.keystore import KeyMissing
from tests.unit.support.adapter import volume_job
from tests.unit.support.payer import ADAPTER, SESSION, terms

SPEC = replace(volume_job(), name="chain")
TERMS = terms(job="job_1", work=SPEC.hash, resource="disk")
MARKET = Signer(b"\x4d" * 32)


def signed(of: Any, adapter: Signer = ADAPTER, session: Signer = SESSION) -> SignedTerms:
    body = of.encode()
    return SignedTerms(body, adapter.sign(body), session.sign(body))


class Opened(Exception):
    """It would have gone there."""


def asked(given: SignedTerms, spec: Any = SPEC, name: str = "chain") -> list[type[BaseException]]:
    """What became of an import, and of an export."""

    async def refresh() -> dict[str, Any]:
        return {"lease": given.terms.lease, "spec": spec.to_wire(), "name": name}

    async def evidence() -> Any:
        return SimpleNamespace(leases=[SimpleNamespace(signed=given)])

    def terminal(_words: object) -> Any:
        raise Opened

    def session(vk: bytes) -> Signer:
        if vk != SESSION.verify_key:
            raise KeyMissing("no such key")
        return SESSION

    job = cast(
        Job, SimpleNamespace(id="job_1", refresh=refresh, evidence=evidence, terminal=terminal)
    )
    purse = cast(Purse, SimpleNamespace(signer=Signer(b"\x01" * 32), session=session))
    told: list[type[BaseException]] = []
    for act in (
        lambda: imported(job, purse, name, Path("source")),
        lambda: exported(job, purse, name, Path("there")),
    ):
        with pytest.raises((Opened, VolumeUnproven)) as said:
            anyio.run(act)
        told.append(said.type)
    return told


def test_what_the_purse_and_the_provider_signed_is_gone_by(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("chain", "job_1"):
        assert asked(signed(TERMS), name=name) == [Opened, Opened]


@pytest.mark.parametrize(
    ("given", "spec", "name"),
    [
        pytest.param(
            signed(replace(TERMS, adapter_vk=MARKET.verify_key), MARKET, MARKET), SPEC, "chain",
            id="the market's own key, which the purse did not sign",
        ),
        pytest.param(
            signed(replace(TERMS, session_vk=MARKET.verify_key), session=MARKET), SPEC, "chain",
            id="another purse's volume",
        ),
        pytest.param(signed(replace(TERMS, job="job_2")), SPEC, "chain", id="another job's terms"),
        pytest.param(
            signed(TERMS), replace(SPEC, name="other"), "other", id="a name that nobody signed"
        ),
        pytest.param(signed(TERMS), SPEC, "other", id="another volume of the owner's"),
    ],
)  # fmt: skip
def test_nothing_goes_where_a_market_points(
    given: SignedTerms, spec: Any, name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert asked(given, spec, name) == [VolumeUnproven, VolumeUnproven]
    assert not list(tmp_path.iterdir())
