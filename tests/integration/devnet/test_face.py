"""The devnet's statuses, fields and orders are Blockfrost's where clients look at them: unserved is
not empty, malformed is not missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cbor2
import httpx
import pytest

from contracts.devnet import Devnet, serve
from contracts.devnet.addresses import describe, drep_id, pool_id, stake_address
from contracts.devnet.index.plutusjson import detailed
from contracts.devnet.transaction import OutRef
from tests.integration.support.devnet import ADA, Party, out, pay
from tests.integration.support.every_kind import (
    DELEGATOR,
    HOLDER,
    POOL,
    base,
    certified,
    minted,
    policy_id,
    with_metadata,
)
from tests.integration.support.ledger_cases import ALICE, BOB, KEY_DEPOSIT, World
from tests.requires import need_devnet

INVALID_PATH = "Invalid path. Please check https://docs.blockfrost.io/"
NOBODY = Party("nobody")


@dataclass(frozen=True)
class Face:
    """A devnet that makes a block of each transaction, and a client of its Blockfrost part."""

    world: World
    client: httpx.Client

    @property
    def devnet(self) -> Devnet:
        return self.world.devnet

    def get(self, path: str, **query: Any) -> Any:
        answer = self.client.get(path, params=query or None)
        assert answer.status_code == 200, (path, answer.text)
        return answer.json()

    def status(self, path: str, **query: Any) -> int:
        answer = self.client.get(path, params=query or None)
        if answer.status_code != 200:
            body = answer.json()
            assert set(body) == {"status_code", "error", "message"}, body
            assert body["status_code"] == answer.status_code
        return answer.status_code


@pytest.fixture(scope="module")
def face() -> Iterator[Face]:
    need_devnet()
    with serve() as served, httpx.Client(base_url=served.url, timeout=60) as client:
        yield Face(World(served.devnet), client)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/no/such/route"),
        ("GET", "/pools"),
        ("GET", "/governance/dreps"),
        ("GET", "/blocks/latest/"),
        ("GET", "/tx/submit"),
        ("POST", "/blocks/latest"),
        ("DELETE", "/tx/submit"),
        ("PUT", "/no/such/route"),
    ],
)
def test_what_is_not_served_is_an_invalid_path(face: Face, method: str, path: str) -> None:
    answer = face.client.request(method, path)
    assert (answer.status_code, answer.json()) == (
        400,
        {"status_code": 400, "error": "Bad Request", "message": INVALID_PATH},
    )


@pytest.mark.parametrize(
    "path",
    [
        "/blocks/xyz",
        "/blocks/-1",
        "/blocks/2147483648",
        "/blocks/latest/next",
        "/blocks/xyz/txs",
        "/blocks/slot/-1",
        "/blocks/epoch/0/slot/x",
        "/epochs/-1",
        "/epochs/2147483648",
        "/epochs/x/parameters",
        "/assets/zz",
        "/assets/" + "ab" * 27,
        "/assets/policy/zz",
        "/assets/zz/transactions",
        "/metadata/txs/labels/x",
        "/metadata/txs/labels/9223372036854775808",
        "/addresses/zzz",
        "/mempool/addresses/zzz",
        "/accounts/stake_test1zzz",
        "/addresses/{alice}/utxos/zzz",
        "/addresses/{alice}/transactions?from=1:2:3",
        "/addresses/{alice}/transactions?from=1:abc",
        "/addresses/{alice}/transactions?to=2147483648",
        "/addresses/{alice}/transactions?from=-1",
        "/addresses/{alice}/transactions?from=5&to=4",
        "/addresses/{alice}/transactions?from=5:1&to=5:0",
        "/addresses/{alice}/utxos?page=0",
    ],
)
def test_what_cannot_exist_is_malformed(face: Face, path: str) -> None:
    assert face.status(path.format(alice=ALICE.address)) == 400


@pytest.mark.parametrize(
    "path",
    [
        "/blocks/999999",
        "/blocks/" + "0" * 64,
        "/blocks/slot/2147483647",
        "/epochs/7",
        "/epochs/7/parameters",
        "/assets/" + "ab" * 28,
        "/assets/policy/" + "ab" * 28,
        "/metadata/txs/labels/424242",
        "/txs/" + "0" * 64,
        "/txs/zz",
        "/mempool/zz",
        "/scripts/zz",
        "/addresses/{nobody}",
        "/addresses/{alice}/utxos/" + "ab" * 28,
        "/accounts/{stake}/rewards",
    ],
)
def test_what_does_not_exist_is_not_found(face: Face, path: str) -> None:
    named = {
        "nobody": NOBODY.address,
        "alice": ALICE.address,
        "stake": stake_address(NOBODY.vkh, False),
    }
    assert face.status(path.format(**named)) == 404


def test_head_is_answered_without_a_body(face: Face) -> None:
    whole, head = face.client.get("/genesis"), face.client.head("/genesis")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(whole.content))
    assert face.client.head("/no/such/route").status_code == 400


def test_a_fault_of_the_devnet_is_json_too() -> None:
    """A closed chain cannot answer: what a client reads is Blockfrost's 500."""
    need_devnet()
    from contracts.devnet.face.app import application

    devnet = Devnet()
    devnet.close()
    transport = httpx.ASGITransport(application(devnet), raise_app_exceptions=False)

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://devnet") as client:
            return await client.get("/api/v0/blocks/latest")

    import anyio

    answer = anyio.run(ask)
    assert (answer.status_code, answer.json()) == (
        500,
        {
            "status_code": 500,
            "error": "Internal Server Error",
            "message": "An unexpected response was received from the backend.",
        },
    )


def test_from_and_to_count_the_position_in_the_block(tmp_path: Any) -> None:
    """Three payments in one block, and one before and after it."""
    need_devnet()
    with serve(block_ms=10**9) as served, httpx.Client(base_url=served.url) as client:
        owner = Party("owner")
        names: list[str] = []
        for many in (1, 3, 1):
            names += [served.devnet.faucet(owner.address, (5 + n) * ADA).tx for n in range(many)]
            served.devnet.mint()

        def asked(**query: Any) -> list[str]:
            path = f"/addresses/{owner.address}/transactions"
            rows = client.get(path, params=query or None).json()
            return [row["tx_hash"] for row in rows]

        assert asked() == names
        assert asked(**{"from": "2:1"}) == names[2:]
        assert asked(to="2:1") == names[:3]
        assert asked(**{"from": "2:1", "to": "2:1"}) == names[2:3]
        assert asked(**{"from": "2", "to": "2", "order": "desc"}) == names[3:0:-1]
        assert asked(**{"from": "2:3", "to": "2"}) == []


def test_the_mempool_shows_spenders_and_the_whole_transaction() -> None:
    need_devnet()
    with serve(block_ms=10**9) as served, httpx.Client(base_url=served.url) as client:
        devnet = served.devnet
        source = devnet.faucet(BOB.address, 10 * ADA)
        devnet.mint()
        paid = devnet.submit(pay(source, BOB, 10 * ADA, [out(ALICE.raw, 8 * ADA)]).signed())
        next_one = pay(OutRef(paid, 0), ALICE, 8 * ADA, [out(ALICE.raw, 2 * ADA)])
        spent = devnet.submit(next_one.signed())

        def touching(address: str) -> list[str]:
            rows = client.get(f"/mempool/addresses/{address}").json()
            return [row["tx_hash"] for row in rows]

        assert touching(BOB.address) == [paid]
        assert touching(ALICE.address) == [paid, spent]
        assert touching(NOBODY.address) == []
        seen = client.get(f"/mempool/{paid}").json()
        assert seen["inputs"][0]["address"] == BOB.address
        assert (seen["tx"]["deposit"], seen["tx"]["utxo_count"]) == ("0", 3)
        assert seen["tx"]["output_amount"] == [{"unit": "lovelace", "quantity": "9800000"}]


def test_a_collateral_return_is_listed_after_the_outputs(face: Face) -> None:
    draft = face.world.spend()
    name = face.devnet.submit(draft.signed())
    outputs = face.get(f"/txs/{name}/utxos")["outputs"]
    assert [(one["output_index"], one["collateral"]) for one in outputs] == [
        (0, False),
        (1, True),
    ]
    returned = outputs[1]
    assert returned["amount"][0]["quantity"] == str(draft.body[16][1])
    assert (returned["address"], returned["consumed_by_tx"]) == (ALICE.address, None)


def test_metadata_stands_by_label_and_in_every_form(face: Face) -> None:
    metadata = {900: "b", 7: {"n": [1, b"\x01\x02"], 5: "five"}}
    name = face.devnet.submit(with_metadata(face.world.payment(), metadata).signed())
    assert face.get(f"/txs/{name}/metadata") == [
        {"label": "7", "json_metadata": {"n": [1, "0x0102"], "5": "five"}},
        {"label": "900", "json_metadata": "b"},
    ]
    (first, second) = face.get(f"/txs/{name}/metadata/cbor")
    assert (first["label"], second["metadata"]) == ("7", cbor2.dumps({900: "b"}).hex())
    assert second["cbor_metadata"] == "\\x" + second["metadata"]
    labels = face.get("/metadata/txs/labels")
    assert {"label": "900", "cip10": None, "count": "1"} in labels
    assert [int(one["label"]) for one in labels] == sorted(int(one["label"]) for one in labels)
    assert face.get("/metadata/txs/labels/900") == [{"tx_hash": name, "json_metadata": "b"}]
    (under,) = face.get("/metadata/txs/labels/900/cbor")
    assert (under["tx_hash"], under["metadata"]) == (name, second["metadata"])
    again = face.devnet.submit(with_metadata(face.world.payment(), {900: 1}).signed())
    assert [one["tx_hash"] for one in face.get("/metadata/txs/labels/900", order="desc")] == [
        again,
        name,
    ]


def test_what_a_token_says_of_itself(face: Face) -> None:
    policy, image = policy_id(ALICE), {"name": "A", "image": "ipfs://x"}
    label = {"r": bytes.fromhex("000643b0"), "nft": bytes.fromhex("000de140")}

    def asset(name: bytes, metadata: Any = None, **more: Any) -> dict[str, Any]:
        names = {name: 1} | ({label["r"] + b"N": 1} if more else {})
        face.devnet.submit(minted(face.world, names, metadata, **more).signed())
        return face.get(f"/assets/{policy.hex()}{name.hex()}")

    one = asset(b"One", {721: {policy.hex(): {"One": image}}})
    assert (one["onchain_metadata"], one["onchain_metadata_standard"]) == (image, "CIP25v1")
    two = asset(b"\xff", {721: {policy: {b"\xff": image}, "version": 2}})
    assert (two["onchain_metadata"], two["onchain_metadata_standard"]) == (image, "CIP25v2")
    bare = asset(b"Bare", {721: {policy.hex(): {"Bare": {"name": "no image"}}}})
    assert (bare["onchain_metadata"], bare["onchain_metadata_standard"]) == (
        {"name": "no image"},
        None,
    )
    assert asset(b"Silent")["onchain_metadata"] is None
    # The newest mint that says anything counts.
    asset(b"One", {721: {policy.hex(): {"One": {**image, "name": "B"}}}})
    assert asset(b"One")["onchain_metadata"]["name"] == "B"
    said = cbor2.CBORTag(121, [{b"name": b"N", b"image": b"ipfs://n", b"odd": 1}, 1, [3]])
    nft = asset(label["nft"] + b"N", None, datum=said)
    assert nft["onchain_metadata"] == {"name": "N", "image": "ipfs://n", "odd": "01"}
    assert (nft["onchain_metadata_standard"], nft["onchain_metadata_extra"]) == ("CIP68v1", "8103")


def test_an_assets_transactions_and_outputs(face: Face) -> None:
    first = face.devnet.submit(minted(face.world, {b"Tx": 3}).signed())
    unit = policy_id(ALICE).hex() + b"Tx".hex()
    second = face.devnet.submit(minted(face.world, {b"Tx": 4}).signed())
    assert face.get(f"/assets/{unit}/txs") == [first, second]
    rows = face.get(f"/assets/{unit}/transactions", order="desc", count=1)
    assert [row["tx_hash"] for row in rows] == [second]
    held = face.get(f"/assets/{unit}/utxos")
    assert [one["tx_hash"] for one in held] == [first, second]
    assert held[0]["inline_datum_json"] is None
    home = describe(base(HOLDER)).text
    listed = face.get(f"/addresses/{home}/extended")["amount"]
    assert {"unit": unit, "quantity": "7", "decimals": None, "has_nft_onchain_metadata": False} in (
        listed
    )
    assert face.get(f"/addresses/{home}/utxos/lovelace") == []
    stake = stake_address(HOLDER.vkh, False)
    assert {"unit": unit, "quantity": "7"} in face.get(f"/accounts/{stake}/addresses/assets")
    assert face.get(f"/accounts/{stake}/addresses/total")["received_sum"][0]["unit"] == "lovelace"
    touched = face.get(f"/accounts/{stake}/transactions")
    assert {(one["tx_hash"], one["address"]) for one in touched} >= {(first, home), (second, home)}


def test_an_account_is_registered_delegated_and_gone(face: Face) -> None:
    stake, who = stake_address(DELEGATOR.vkh, False), [0, DELEGATOR.vkh]

    def act(certificate: list[Any], deposit: int, *signers: Party) -> str:
        return face.devnet.submit(certified(face.world, [certificate], deposit, *signers).signed())

    def seen() -> tuple[Any, ...]:
        one = face.get(f"/accounts/{stake}")
        return tuple(one[key] for key in ("registered", "active", "pool_id", "drep_id"))

    made = act([7, who, KEY_DEPOSIT], KEY_DEPOSIT, DELEGATOR)
    assert seen() == (True, False, None, None)
    face.devnet.reward(stake, 3 * ADA)
    assert [one["amount"] for one in face.get(f"/accounts/{stake}/rewards")] == [str(3 * ADA)]
    act([9, who, [2]], 0, DELEGATOR)
    assert seen()[3] == "drep_always_abstain"
    (registered,) = face.get(f"/accounts/{stake}/registrations")
    assert (registered["tx_hash"], registered["deposit"]) == (made, str(KEY_DEPOSIT))
    block = face.get(f"/blocks/{registered['block_height']}")
    assert (registered["tx_slot"], registered["block_time"]) == (block["slot"], block["time"])
    assert face.get(f"/accounts/{stake}/history") == face.get(f"/accounts/{stake}/mirs") == []
    assert face.get(f"/accounts/{stake}")["active_epoch"] == 0


def test_delegations(face: Face) -> None:
    keeper = Party("keeper")
    stake, who = stake_address(keeper.vkh, False), [0, keeper.vkh]
    pool = [3, POOL.vkh, bytes(32), 0, 340 * ADA, cbor2.CBORTag(30, [1, 20])]
    pool += [b"\xe0" + keeper.vkh, [keeper.vkh], [], None]
    face.devnet.submit(certified(face.world, [[7, who, KEY_DEPOSIT]], KEY_DEPOSIT, keeper).signed())
    face.devnet.submit(certified(face.world, [pool], 500 * ADA, POOL, keeper).signed())
    drep = [16, [0, POOL.vkh], 500 * ADA, None]
    face.devnet.submit(certified(face.world, [drep], 500 * ADA, POOL).signed())
    both = [10, who, POOL.vkh, [0, POOL.vkh]]
    made = face.devnet.submit(certified(face.world, [both], 0, keeper).signed())
    account = face.get(f"/accounts/{stake}")
    assert (account["active"], account["pool_id"]) == (True, pool_id(POOL.vkh))
    assert account["drep_id"] == drep_id(POOL.vkh, False)
    (listed,) = face.get(f"/accounts/{stake}/delegations")
    assert (listed["tx_hash"], listed["active_epoch"]) == (made, 2)
    (told,) = face.get(f"/txs/{made}/delegations")
    assert (told["address"], told["pool_id"]) == (stake, pool_id(POOL.vkh))
    face.devnet.submit(
        certified(face.world, [[8, who, KEY_DEPOSIT]], -KEY_DEPOSIT, keeper).signed()
    )
    account = face.get(f"/accounts/{stake}")
    assert (account["registered"], account["active"], account["drep_id"]) == (False, False, None)
    assert account["active_epoch"] == 0


def test_blocks_tell_their_transactions_and_addresses(face: Face) -> None:
    source = face.world.coin(ALICE, 10 * ADA)
    name = face.devnet.submit(pay(source, ALICE, 10 * ADA, [out(BOB.raw, 2 * ADA)]).signed())
    height = face.get("/blocks/latest")["height"]
    (whole,) = face.get("/blocks/latest/txs/cbor")
    assert (whole["tx_hash"], whole["cbor"]) == (name, face.get(f"/txs/{name}/cbor")["cbor"])
    told = {one["address"]: one["transactions"] for one in face.get(f"/blocks/{height}/addresses")}
    assert told == {who.address: [{"tx_hash": name}] for who in (ALICE, BOB)}
    hashes = face.get("/epochs/0/blocks", order="desc", count=2)
    assert hashes == [face.get(f"/blocks/{at}")["hash"] for at in (height, height - 1)]


def test_epochs_and_eras_go_on(tmp_path: Any) -> None:
    need_devnet()
    day = 86_400_000
    with serve() as served, httpx.Client(base_url=served.url) as client:
        for _ in range(2):
            served.devnet.advance(5 * day)

        def numbers(path: str, **query: Any) -> list[int]:
            return [one["epoch"] for one in client.get(path, params=query or None).json()]

        assert numbers("/epochs/0/next") == [1, 2]
        assert numbers("/epochs/2/previous") == [0, 1]
        assert numbers("/epochs/2/previous", count=1, page=2) == [0]
        (era,) = client.get("/network/eras").json()
        assert era["end"]["epoch"] == 3
        nonces = {client.get(f"/epochs/{one}/parameters").json()["nonce"] for one in range(3)}
        assert len(nonces) == 3


def test_a_reference_script_is_found_where_it_lies(face: Face) -> None:
    reference = face.world.reference
    (at,) = face.get(f"/txs/{reference.tx}/utxos")["outputs"][:1]
    rows = face.get(f"/scripts/{at['reference_script_hash']}/utxos")
    assert (reference.tx, reference.ix) in {(one["tx_hash"], one["output_index"]) for one in rows}


def test_datums_keep_map_keys_and_duplicates() -> None:
    """{{1: 2}: 3, 1: 1, 1: 2} has a map as key and one key twice."""
    raw = bytes.fromhex("a3a1010203010101" + "02")
    pair = {"k": {"int": 1}, "v": {"int": 2}}
    assert detailed(raw) == {
        "map": [
            {"k": {"map": [pair]}, "v": {"int": 3}},
            {"k": {"int": 1}, "v": {"int": 1}},
            pair,
        ]
    }
    assert detailed(cbor2.dumps(cbor2.CBORTag(102, [9, [b"x", -(2**70)]]))) == {
        "constructor": 9,
        "fields": [{"bytes": "78"}, {"int": -(2**70)}],
    }
