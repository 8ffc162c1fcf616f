"""The small parts of the client: sign-in, problems, retries, output paths, the offers query."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import httpx
import pytest

from marketplace.chain.encoding.address import key_address
from marketplace.chain.signin import verify_sign_in
from marketplace.cli.commands.offers import parse_query, rows_of
from marketplace.client.net.http import Http, MarketFault, MarketRefused
from marketplace.client.net.signin import sign_message
from marketplace.client.sdk.outputs import OutputRefused, safe_path
from marketplace.client.wallet.purse import Purse, stake_hash
from marketplace.domain.errors import Malformed
from marketplace.domain.keys import Signer
from marketplace.keystore import KeyMissing
from tests.unit.support.answers import offer_answer

PASS = "a passphrase of the tests"


def test_a_purse_signs_in_as_a_wallet_does() -> None:
    signer = Signer(b"\x21" * 32)
    address = key_address(signer.key_hash, stake_hash(signer), False)
    signed = sign_message(signer, address, b"Sign in to Tally\nnonce: 1")
    account, said = verify_sign_in(address.hex(), signed.signature, signed.key, False)
    assert account == signer.key_hash.hex() and said == "Sign in to Tally\nnonce: 1"


def test_a_purse_is_one_key_and_its_sessions(tmp_path: Path) -> None:
    with pytest.raises(KeyMissing):
        Purse.load(tmp_path, passphrase=PASS)
    purse = Purse.create(tmp_path, passphrase=PASS)
    assert Purse.load(tmp_path, passphrase=PASS).signer == purse.signer
    assert purse.address(mainnet=False).startswith("addr_test1q")  # a base address
    assert purse.address(mainnet=True).startswith("addr1q")
    session = purse.new_session()
    assert purse.session(session.verify_key) == session
    assert [key.verify_key for key in purse.sessions()] == [session.verify_key]
    purse.forget_session(session.verify_key)
    with pytest.raises(KeyMissing):
        purse.session(session.verify_key)


def answers(*responses: httpx.Response) -> tuple[Http, list[httpx.Request]]:
    """A market that gives *responses* in turn."""
    asked: list[httpx.Request] = []
    left = list(responses)

    def give(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return left.pop(0)

    return Http("http://market", "token", httpx.MockTransport(give)), asked


def test_a_problem_keeps_its_code_remedy_and_fields() -> None:
    body = {
        "code": "NO_MATCH",
        "detail": "0 of 3",
        "remedy": "relax",
        "fields": {"explain": {"x": 1}},
    }

    async def main() -> None:
        http, asked = answers(httpx.Response(422, json=body))
        with pytest.raises(MarketRefused) as caught:
            await http.post("/v1/jobs", {}, "k1")
        error = caught.value
        assert (error.code, error.remedy, error.message) == ("NO_MATCH", "relax", "0 of 3")
        assert error.fields["explain"] == {"x": 1} and error.fields["status"] == 422
        assert asked[0].headers["Idempotency-Key"] == "k1" and len(asked) == 1

    anyio.run(main)


def test_what_may_help_is_tried_again_with_the_same_key_and_the_rest_is_not() -> None:
    async def main() -> None:
        http, asked = answers(
            httpx.Response(503, json={"code": "CHAIN_FAULT"}),
            httpx.Response(200, json={"id": "job"}),
        )
        assert await http.post("/v1/jobs", {}) == {"id": "job"}
        assert asked[0].headers["Idempotency-Key"] == asked[1].headers["Idempotency-Key"]
        http, asked = answers(*[httpx.Response(503, json={"code": "CHAIN_FAULT"})] * 4)
        with pytest.raises(MarketFault) as caught:
            await http.get("/v1/jobs")
        assert caught.value.code == "CHAIN_FAULT" and len(asked) == 4

    anyio.run(main)


def test_a_session_that_is_over_is_renewed_once() -> None:
    async def main() -> None:
        over = httpx.Response(401, json={"code": "UNAUTHENTICATED"})
        http, asked = answers(over, httpx.Response(200, json={"ok": 1}), over, over)

        async def renew() -> None:
            http.token = "fresh"

        http.renew = renew
        assert await http.get("/v1/jobs") == {"ok": 1}
        assert asked[1].headers["Authorization"] == "Bearer fresh"
        with pytest.raises(MarketRefused):
            await http.get("/v1/jobs")
        assert len(asked) == 4

    anyio.run(main)


@pytest.mark.parametrize(
    "name", ["../x", "a/../../x", "/", "", ".", "..", "/workspace/../../x", "a\x00b"]
)
def test_an_output_that_would_leave_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputRefused):
        safe_path(tmp_path, name)


def test_outputs_land_inside_and_no_link_leads_out(tmp_path: Path) -> None:
    assert safe_path(tmp_path, "/workspace/out/a.bin") == tmp_path.resolve() / "out" / "a.bin"
    assert safe_path(tmp_path, "/etc/passwd") == tmp_path.resolve() / "etc" / "passwd"
    os.symlink("/etc", tmp_path / "out")
    with pytest.raises(OutputRefused):
        safe_path(tmp_path, "out/passwd")


GPU = {"model": "NVIDIA A10", "vram_mib": 23_028, "rate_micro": 100_000_000, "simulated": False}
OFFER = offer_answer(gpus=[{**GPU, "free_milli": 1000}, {**GPU, "free_milli": 0}])


def test_the_offers_query_reads_devices_as_a_person_means_them() -> None:
    gpu, cores = rows_of(OFFER)
    assert (gpu["count"], gpu["free"], cores["resource"]) == (2, 1, "core")

    def shows(query: str) -> list[str]:
        terms = parse_query(query)
        return [row["resource"] for row in (gpu, cores) if all(t.holds(row) for t in terms)]

    assert shows("gpu.vram>=24GB price<120") == ["gpu"]
    assert shows("gpu.model=a10") == ["gpu"] and shows("gpu.model=A100") == []
    assert shows("region=EU trust>=1") == ["gpu", "core"] and shows("price<=5lovelace") == ["core"]
    for wrong in ("gpu.vran>=1GB", "price", "price<x", "region>EU", "cpu>=1.5"):
        with pytest.raises(Malformed) as caught:
            parse_query(wrong)
        assert caught.value.code in ("USAGE", "MALFORMED")
