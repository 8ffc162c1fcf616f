"""Every route that the devnet serves answers as Blockfrost's published schema says, on a chain with
every kind of transaction.

The schema is npm's ``@blockfrost/openapi``, unmodified. Fields that it does not know are faults
too: a client's strict decoder stops at them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest

from contracts.devnet import Devnet, Served, serve
from contracts.devnet.face.app import API
from tests.integration.support.devnet import FrozenClock, Party
from tests.integration.support.every_kind import Everything, build
from tests.integration.support.ledger_cases import ALICE, World
from tests.requires import need_devnet, need_js_clients

# Kinds that support_every_kind does not make itself, one case each.
FEW = (
    "fee_one_below_the_minimum",
    "past_its_end",
    "required_signer_missing",
    "mint_without_its_script",
    "metadata_with_another_hash",
    "withdrawal_of_a_part",
    "deregistered_without_registration",
    "script_says_no",
    "datum_of_a_hash_left_out",
)
LATE = Party("late")
# Nothing of the kind exists on a devnet, or not in its first epoch: lists that are rightly empty.
EMPTY = {
    "/accounts/{}/history",
    "/accounts/{}/mirs",
    "/txs/{}/mirs",
    "/epochs/{}/next",
    "/epochs/{}/previous",
}


def strict(schema: Any) -> Any:
    """OpenAPI 3.0's schema as JSON Schema: ``nullable`` spelt out, and fields closed where they are
    listed.
    """
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(one) for key, one in schema.items() if key not in ("example", "examples")}
    if made.get("type") == "object" and "properties" in made:
        made.setdefault("additionalProperties", False)
    if made.pop("nullable", False):
        made = {"anyOf": [{"type": "null"}, made]}
    return made


def bare(path: str) -> str:
    """A route without its parameters' names."""
    return re.sub(r"\{[^}]*\}", "{}", path)


def published(folder: Path) -> dict[str, Any]:
    """Blockfrost's schemas of answers, by bare path and status."""
    text = (folder / "node_modules/@blockfrost/openapi/json-schema.json").read_text()
    return {bare(path): one["response"] for path, one in json.loads(text).items()}


class Filled:
    """A served devnet with everything on it, and every value that a path may hold."""

    def __init__(self, served: Served, made: Everything) -> None:
        self.origin = served.origin
        self.client = httpx.Client(base_url=served.url, timeout=60)
        self.made = made
        waiting = [tx.id for tx in served.devnet.waiting()]
        outputs = [
            one
            for name in made.txs.values()
            for one in self.get(f"/txs/{name}/utxos").json()["outputs"]
        ]
        addresses = sorted({one["address"] for one in outputs})
        datums = sorted({one["data_hash"] for one in outputs if one["inline_datum"]})
        stakes = {self.get(f"/addresses/{one}").json()["stake_address"] for one in addresses}
        stakes |= {
            one["address"]
            for name in made.txs.values()
            for part in ("stakes", "withdrawals")
            for one in self.get(f"/txs/{name}/{part}").json()
        }
        latest = self.get("/blocks/latest").json()
        units = [one["asset"] for one in self.get("/assets").json()]
        slot, epoch = str(latest["slot"]), str(latest["epoch"])
        self.values: list[tuple[str, list[str]]] = [
            ("/addresses/{}/utxos/{}", [f"{a}/utxos/{u}" for a in addresses for u in units]),
            ("/addresses/{}", addresses),
            ("/accounts/{}", sorted(stakes - {None})),
            ("/assets/policy/{}", sorted({unit[:56] for unit in units})),
            ("/assets/{}", units),
            ("/blocks/epoch/{}/slot/{}", [f"{epoch}/slot/{latest['epoch_slot']}"]),
            ("/blocks/slot/{}", [slot]),
            ("/blocks/{}", ["0", str(latest["height"] - 1), latest["hash"]]),
            ("/epochs/{}", [epoch]),
            ("/mempool/addresses/{}", [ALICE.address]),
            ("/mempool/{}", waiting),
            (
                "/metadata/txs/labels/{}",
                [one["label"] for one in self.get("/metadata/txs/labels").json()],
            ),
            ("/scripts/datum/{}", datums),
            ("/scripts/{}", [one["script_hash"] for one in self.get("/scripts").json()]),
            ("/txs/{}", list(made.txs.values())),
        ]

    def get(self, path: str) -> httpx.Response:
        return self.client.get(path)

    def paths(self, route: str) -> list[str]:
        """Every path that a bare route has on this chain."""
        if "{}" not in route:
            return [route]
        for head, values in self.values:
            if route.startswith(head):
                start = head[: head.index("{}")]
                return [start + value + route[len(head) :] for value in values]
        raise AssertionError(f"no values for {route}")


@contextmanager
def filled(folder: Path, cases: Collection[str] | None) -> Generator[Filled, None, None]:
    """Blocks with everything in them; after a restart everything waits, so that the mempool is full
    too.
    """
    need_devnet()
    need_js_clients()
    clock = FrozenClock()  # cases end in this very second
    with Devnet(folder, clock=clock) as devnet:
        clock.now += 100_000
        made = build(devnet, cases)
    with serve(folder, block_ms=10**9, clock=clock) as served:
        world = World(served.devnet)
        for draft in (world.payment(), world.spend(), world.mint(), world.registered(LATE)):
            served.devnet.submit(draft.signed())
        chain = Filled(served, made)
        with closing(chain.client):
            yield chain


def faults(chain: Filled) -> list[str]:
    """What of the served routes is not as published, each with its path."""
    schemas = published(need_js_clients())
    found: list[str] = []
    for route in served_routes(chain):
        if route not in schemas:
            found.append(f"{route}: Blockfrost has no such route")
            continue
        check = jsonschema_rs.Draft7Validator(strict(schemas[route]["200"]))
        full = False
        for path in chain.paths(route):
            answer = chain.get(path)
            if answer.status_code != 200:
                found.append(f"{path}: {answer.status_code} {answer.text[:200]}")
                continue
            body = answer.json()
            full = full or body not in ([], None)
            found += [
                f"{path}: {one.message[:300]} at {list(one.instance_path)}"
                for one in check.iter_errors(body)
            ]
        if not full and route not in EMPTY:
            found.append(f"{route}: nothing on this chain shows it")
    return found


def served_routes(chain: Filled) -> list[str]:
    """Every route of Blockfrost's that the devnet answers to GET, as its own /openapi.json tells
    them.
    """
    paths: dict[str, Any] = httpx.get(chain.origin + "/openapi.json").json()["paths"]
    found = {
        bare(path.removeprefix(API)) or "/"
        for path, methods in paths.items()
        if path.startswith(API) and "get" in methods
    }
    return sorted(found)


def test_the_routes_answer_as_published(tmp_path: Path) -> None:
    with filled(tmp_path, FEW) as chain:
        assert len(served_routes(chain)) >= 74
        found = faults(chain)
        assert not found, "\n".join(found)


@pytest.mark.prove
def test_the_routes_answer_as_published_for_every_kind_of_transaction(tmp_path: Path) -> None:
    with filled(tmp_path, None) as chain:
        found = faults(chain)
        assert not found, "\n".join(found)


def _posts(world: World) -> list[tuple[str, str | None, bytes, int]]:
    """(route, media type, body, status) of whatever is posted to a chain, right and wrong."""
    submit, evaluate, given = "/tx/submit", "/utils/txs/evaluate", "/utils/txs/evaluate/utxos"
    cbor, as_json = "application/cbor", "application/json"
    right, spend = world.payment().signed(), world.spend()
    wrong = spend.put(redeemers={(0, 0): (41, world.units)}).signed()
    unknown = world.payment().set(0, [[bytes(32), 0]]).signed()
    asked = json.dumps({"cbor": spend.signed().hex(), "additionalUtxoSet": []}).encode()
    cut = json.dumps({"cbor": right.hex()[:-2]}).encode()
    return [
        (submit, cbor, right, 200),
        (submit, f"{cbor}; q=1", world.payment().signed().hex().encode(), 200),
        (submit, cbor, right, 400),  # the same again
        (submit, cbor, wrong, 400),
        (submit, cbor, unknown, 400),
        (submit, cbor, b"", 400),
        (submit, cbor, b"\x84\x00", 400),
        *(
            (submit, kind, right, 415)
            for kind in (None, "text/plain", as_json, "application/cborx")
        ),
        *((evaluate, cbor, one, 200) for one in (spend.signed(), wrong, unknown, b"", b"\x84\x00")),
        (f"{evaluate}?version=6", cbor, spend.signed(), 200),
        (f"{evaluate}?version=6", cbor, wrong, 200),
        (f"{evaluate}?version=7", cbor, spend.signed(), 400),
        *((evaluate, kind, spend.signed(), 415) for kind in (None, "text/plain", as_json)),
        *((given, as_json, one, 200) for one in (asked, cut)),
        *((given, as_json, one, 400) for one in (b"", b"[]", b'{"cbor": 1}', b"{", b"\xff")),
        *((given, kind, asked, 415) for kind in (None, cbor)),
    ]


def test_what_is_posted_is_answered_as_published() -> None:
    need_devnet()
    schemas = published(need_js_clients())
    with serve() as served, httpx.Client(base_url=served.url, timeout=60) as client:
        for path, kind, body, status in _posts(World(served.devnet)):
            headers = {} if kind is None else {"Content-Type": kind}
            answer = client.post(path, content=body, headers=headers)
            asked = (path, kind, body[:20])
            assert (answer.status_code, asked) == (status, asked), answer.text
            assert answer.headers["content-type"].startswith("application/json"), asked
            # The published file lists no 415, which Blockfrost's servers give all the same: in the
            # shape of every error.
            schema = schemas[path.partition("?")[0]]["400" if status == 415 else str(status)]
            found = list(jsonschema_rs.Draft7Validator(strict(schema)).iter_errors(answer.json()))
            assert not found, (asked, [one.message for one in found])
            if status == 415:
                told = answer.json()
                assert (told["status_code"], told["error"]) == (415, "Unsupported Media Type")
                wanted = "application/json" if path.endswith("/utxos") else "application/cbor"
                assert f"Send the body as {wanted}." in told["message"]


def test_errors_answer_as_published() -> None:
    need_devnet()
    schemas = published(need_js_clients())
    with serve() as served:
        for path in ("/txs/zz", "/addresses/zz", "/pools", "/assets?page=x", "/blocks/xyz"):
            answer = httpx.get(served.url + path, timeout=60)
            assert answer.status_code in (400, 404), path
            schema = schemas["/tx/submit"][str(answer.status_code)]
            assert jsonschema_rs.Draft7Validator(strict(schema)).is_valid(answer.json()), path


def test_the_check_can_fail() -> None:
    """A field that is missing, one of another type and one too many are each found."""
    schema = strict(published(need_js_clients())["/blocks/{}/txs/cbor"]["200"])
    check = jsonschema_rs.Draft7Validator(schema)
    good = {"tx_hash": "ab", "cbor": "00"}
    assert check.is_valid([good])
    for wrong in ({"tx_hash": "ab"}, {**good, "cbor": 1}, {**good, "more": 1}):
        assert not check.is_valid([wrong])
