"""Unmodified pycardano and blockfrost-python against the devnet, as scripts of their users would be
written.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pycardano as pc
import pytest
from blockfrost import ApiError, BlockFrostApi

from contracts.devnet import Served, serve
from tests.integration.support.devnet import ADA, ANSWER_42, compiled
from tests.requires import need_devnet

CBOR = {"Content-Type": "application/cbor"}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    need_devnet()
    with serve() as one:
        yield one


@pytest.fixture(scope="module")
def api(served: Served) -> Any:
    return BlockFrostApi(project_id="devnet", base_url=served.base_url)


@pytest.fixture(scope="module")
def context(served: Served) -> pc.BlockFrostChainContext:
    return pc.BlockFrostChainContext("devnet", base_url=served.base_url)


@pytest.fixture(scope="module")
def control(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.origin, timeout=60) as client:
        yield client


class Wallet:
    """A fresh key with money from the faucet."""

    def __init__(self, control: httpx.Client, *lovelace: int) -> None:
        self.sk = pc.PaymentSigningKey.generate()
        self.vk = pc.PaymentVerificationKey.from_signing_key(self.sk)
        self.address = pc.Address(self.vk.hash(), network=pc.Network.TESTNET)
        for one in lovelace:
            paid = control.post(
                "/devnet/faucet", json={"address": str(self.address), "lovelace": one}
            )
            assert paid.status_code == 200, paid.text


def amount(api: Any, address: Any) -> int:
    return int(api.address(str(address)).amount[0].quantity)


def test_a_plain_payment(context: Any, api: Any, control: httpx.Client) -> None:
    wallet, friend = Wallet(control, 100 * ADA), Wallet(control)
    builder = pc.TransactionBuilder(context)
    builder.add_input_address(wallet.address)
    builder.add_output(pc.TransactionOutput(friend.address, pc.Value(5 * ADA)))
    tx = builder.build_and_sign([wallet.sk], wallet.address)
    assert context.submit_tx(tx) == str(tx.id)
    found = api.transaction(str(tx.id))
    assert int(found.fees) == tx.transaction_body.fee
    assert found.block == api.block_latest().hash
    assert amount(api, friend.address) == 5 * ADA
    assert amount(api, wallet.address) == 95 * ADA - int(found.fees)
    flow = api.transaction_utxos(str(tx.id))
    assert [one.address for one in flow.inputs] == [str(wallet.address)]
    assert [one.consumed_by_tx for one in flow.outputs] == [None, None]
    assert api.transaction_cbor(str(tx.id)).cbor == tx.to_cbor_hex()
    assert [one.tx_hash for one in api.address_transactions(str(friend.address))] == [str(tx.id)]


def test_a_native_token_is_minted(context: Any, api: Any, control: httpx.Client) -> None:
    wallet = Wallet(control, 100 * ADA)
    policy = pc.ScriptAll([pc.ScriptPubkey(wallet.vk.hash())])
    tokens = pc.MultiAsset.from_primitive({bytes(policy.hash()): {b"Tally": 1000}})
    builder = pc.TransactionBuilder(context)
    builder.add_input_address(wallet.address)
    builder.mint, builder.native_scripts = tokens, [policy]
    builder.add_output(pc.TransactionOutput(wallet.address, pc.Value(2 * ADA, tokens)))
    builder.auxiliary_data = pc.AuxiliaryData(pc.Metadata({674: {"msg": ["minted"]}}))
    tx = builder.build_and_sign([wallet.sk], wallet.address)
    context.submit_tx(tx)
    unit = policy.hash().payload.hex() + b"Tally".hex()
    asset = api.asset(unit)
    assert (asset.quantity, asset.initial_mint_tx_hash) == ("1000", str(tx.id))
    assert asset.fingerprint.startswith("asset1")
    assert [one.address for one in api.asset_addresses(unit)] == [str(wallet.address)]
    assert api.transaction_metadata(str(tx.id))[0].label == "674"
    kept = [one for one in context.utxos(wallet.address) if one.output.amount.multi_asset]
    assert [one.output.amount.multi_asset for one in kept] == [tokens]
    assert api.script(policy.hash().payload.hex()).type == "timelock"
    assert [one.tx_hash for one in api.address_utxos_asset(str(wallet.address), unit)] == [
        str(tx.id)
    ]


def test_a_script_is_spent_by_reference(context: Any, api: Any, control: httpx.Client) -> None:
    wallet = Wallet(control, 100 * ADA, 10 * ADA)
    script = pc.PlutusV3Script(compiled(ANSWER_42))
    home = pc.Address(pc.plutus_script_hash(script), network=pc.Network.TESTNET)
    builder = pc.TransactionBuilder(context)
    builder.add_input_address(wallet.address)
    builder.add_output(pc.TransactionOutput(wallet.address, pc.Value(5 * ADA), script=script))
    builder.add_output(pc.TransactionOutput(home, pc.Value(7 * ADA), datum=pc.Unit()))
    made = builder.build_and_sign([wallet.sk], wallet.address)
    context.submit_tx(made)

    reference = next(one for one in context.utxos(wallet.address) if one.output.script)
    assert reference.output.script == script
    (locked,) = context.utxos(home)

    def spend(answer: int) -> pc.Transaction:
        builder = pc.TransactionBuilder(context)
        builder.add_input_address(wallet.address)
        builder.add_script_input(locked, script=reference, redeemer=pc.Redeemer(answer))
        return builder.build_and_sign([wallet.sk], wallet.address)

    with pytest.raises(pc.TransactionFailedException, match="EvaluationFailure"):
        spend(41)
    tx = spend(42)
    context.submit_tx(tx)
    assert context.utxos(home) == []
    (redeemer,) = api.transaction_redeemers(str(tx.id))
    assert (redeemer.purpose, redeemer.script_hash) == (
        "spend",
        pc.plutus_script_hash(script).payload.hex(),
    )
    datum = api.transaction_utxos(str(made.id)).outputs[1]
    assert (
        api.script_datum_cbor(datum.data_hash).cbor == datum.inline_datum == pc.Unit().to_cbor_hex()
    )
    assert api.script_datum(datum.data_hash).json_value.constructor == 0
    consumed = api.transaction_utxos(str(made.id)).outputs[1].consumed_by_tx
    assert consumed == str(tx.id)


def test_refusals_carry_the_ledgers_reason(context: Any, control: httpx.Client) -> None:
    wallet = Wallet(control, 10 * ADA)
    builder = pc.TransactionBuilder(context)
    builder.add_input_address(wallet.address)
    builder.add_output(pc.TransactionOutput(wallet.address, pc.Value(2 * ADA)))
    tx = builder.build_and_sign([wallet.sk], wallet.address)
    context.submit_tx(tx)
    with pytest.raises(pc.TransactionFailedException, match=r"400.*Missing inputs"):
        context.submit_tx(tx)


def test_a_withdrawal_by_a_registered_key(context: Any, api: Any, control: httpx.Client) -> None:
    wallet = Wallet(control, 50 * ADA)
    stake_sk = pc.StakeSigningKey.generate()
    stake_vk = pc.StakeVerificationKey.from_signing_key(stake_sk)
    account = pc.Address(staking_part=stake_vk.hash(), network=pc.Network.TESTNET)
    builder = pc.TransactionBuilder(context)
    builder.add_input_address(wallet.address)
    credential = pc.StakeCredential(stake_vk.hash())
    nobody = pc.DRep(pc.DRepKind.ALWAYS_ABSTAIN)
    builder.certificates = [pc.StakeRegistration(credential), pc.VoteDelegation(credential, nobody)]
    builder.add_output(pc.TransactionOutput(wallet.address, pc.Value(2 * ADA)))
    context.submit_tx(builder.build_and_sign([wallet.sk, stake_sk], wallet.address))
    seen = api.accounts(str(account))
    assert (seen.registered, seen.active) == (True, False)  # registered, delegated to no pool
    asked = {"stake_address": str(account), "lovelace": 3 * ADA}
    assert control.post("/devnet/reward", json=asked).status_code == 200
    assert api.accounts(str(account)).withdrawable_amount == str(3 * ADA)
    builder = pc.TransactionBuilder(context)
    builder.add_input_address(wallet.address)
    builder.withdrawals = pc.Withdrawals({bytes(account): 3 * ADA})
    builder.add_output(pc.TransactionOutput(wallet.address, pc.Value(2 * ADA)))
    tx = builder.build_and_sign([wallet.sk, stake_sk], wallet.address)
    context.submit_tx(tx)
    assert api.accounts(str(account)).withdrawable_amount == "0"
    assert [one.amount for one in api.transaction_withdrawals(str(tx.id))] == [str(3 * ADA)]


def test_pages_and_their_order(api: Any, control: httpx.Client) -> None:
    wallet = Wallet(control, *[(2 + i) * ADA for i in range(7)])
    whole = api.address_utxos(str(wallet.address))
    assert len(whole) == 7
    assert api.address_utxos(str(wallet.address), gather_pages=True, count=3) == whole
    back = api.address_utxos(str(wallet.address), order="desc", count=2, page=2)
    assert back == whole[::-1][2:4]
    assert api.address_utxos(str(wallet.address), page=9) == []


def test_errors_have_blockfrosts_shape(api: Any, control: httpx.Client) -> None:
    fresh = Wallet(control)
    with pytest.raises(ApiError) as missing:
        api.address_utxos(str(fresh.address))
    assert (missing.value.status_code, missing.value.error) == (404, "Not Found")
    with pytest.raises(ApiError) as malformed:
        api.address("addr_test1nonsense")
    assert (malformed.value.status_code, malformed.value.error) == (400, "Bad Request")
    mainnet = str(pc.Address(fresh.vk.hash(), network=pc.Network.MAINNET))
    for path in (f"/api/v0/addresses/{mainnet}", "/api/v0/blocks/latest/txs?count=101"):
        answer = control.get(path)
        assert (answer.status_code, set(answer.json())) == (
            400,
            {"status_code", "error", "message"},
        )
    assert control.get("/api/v0/no/such/route").json()["message"].startswith("Invalid path")
    refused = control.post("/devnet/faucet", json={"address": mainnet, "lovelace": ADA})
    assert (refused.status_code, refused.json()["code"]) == (400, "devnet_refused")


def test_genesis_blocks_and_parameters(served: Served, api: Any, context: Any) -> None:
    start = api.genesis().system_start
    latest = api.block_latest()
    assert latest.time == start + latest.slot
    assert api.block(str(latest.height)).hash == api.block(latest.hash).hash == latest.hash
    assert api.genesis().network_magic == 42
    assert api.block("0").next_block == api.block("1").hash
    published = context.protocol_param
    assert (published.min_fee_coefficient, published.min_fee_constant) == (44, 155381)
    assert (published.coins_per_utxo_byte, published.max_tx_ex_mem) == (4310, 16_500_000)
    assert len(published.cost_models["PlutusV3"]) == 297
    assert context.genesis_param.system_start == served.devnet.system_start


def test_utxos_by_payment_credential(api: Any, control: httpx.Client) -> None:
    """One credential under two stake parts: how a reader finds every channel at once."""
    wallet = Wallet(control, 2 * ADA)
    base = pc.Address(wallet.vk.hash(), wallet.vk.hash(), network=pc.Network.TESTNET)
    paid = control.post("/devnet/faucet", json={"address": str(base), "lovelace": 3 * ADA})
    assert paid.status_code == 200
    from pycardano.crypto.bech32 import encode

    credential = encode("addr_vkh", wallet.vk.hash().payload)
    rows = api.address_utxos(credential)
    assert {one.address for one in rows} == {str(wallet.address), str(base)}


def test_evaluation_with_outputs_not_on_chain(context: Any, control: httpx.Client) -> None:
    """Blockfrost's evaluate/utxos: units of a transaction over a parent that nobody has submitted
    yet.
    """
    wallet = Wallet(control, 20 * ADA)
    script = pc.PlutusV3Script(compiled(ANSWER_42))
    home = pc.Address(pc.plutus_script_hash(script), network=pc.Network.TESTNET)
    ghost = pc.UTxO(
        pc.TransactionInput.from_primitive(["ab" * 32, 0]),
        pc.TransactionOutput(home, pc.Value(3 * ADA), datum=pc.Unit()),
    )
    (coin,) = context.utxos(wallet.address)
    body = pc.TransactionBody(
        inputs=[ghost.input, coin.input],
        outputs=[pc.TransactionOutput(wallet.address, pc.Value(22 * ADA))],
        fee=ADA,
        collateral=[coin.input],
    )
    spend = pc.Redeemer(42, pc.ExecutionUnits(1, 1))
    witness = pc.TransactionWitnessSet(
        plutus_v3_script=[script],
        redeemer=[spend],
        vkey_witnesses=[pc.VerificationKeyWitness(wallet.vk, wallet.sk.sign(body.hash()))],
    )
    ordered = sorted([ghost.input, coin.input], key=lambda one: one.transaction_id.payload)
    spend.tag = pc.RedeemerTag.SPEND
    spend.index = ordered.index(ghost.input)
    tx = pc.Transaction(body, witness).to_cbor_hex()
    unknown = control.post("/api/v0/utils/txs/evaluate", content=tx, headers=CBOR).json()
    assert "EvaluationFailure" in unknown["result"]
    output = {"address": str(home), "value": {"coins": 3 * ADA}, "datum": pc.Unit().to_cbor_hex()}
    asked = {"cbor": tx, "additionalUtxoSet": [[{"txId": "ab" * 32, "index": 0}, output]]}
    known = control.post("/api/v0/utils/txs/evaluate/utxos", json=asked).json()
    (units,) = known["result"]["EvaluationResult"].values()
    assert units["memory"] > 0 and units["steps"] > 0


def test_the_clients_are_unmodified() -> None:
    """Both come from where pip put them."""
    import blockfrost

    for module in (pc, blockfrost):
        assert module.__file__ is not None
        assert "site-packages" in Path(module.__file__).parts
