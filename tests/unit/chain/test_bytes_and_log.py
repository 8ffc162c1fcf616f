"""A wallet's signatures go into the very bytes it signed; the log survives crashes and company."""

from __future__ import annotations

from pathlib import Path

import anyio
import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketplace.chain.build import plans
from marketplace.chain.encoding import txbytes
from marketplace.chain.encoding.utxo import OutRef
from marketplace.chain.node.submit import FileLog, TxRecord
from marketplace.chain.transaction.outputs import Out
from marketplace.domain.canonical import blake2b_256
from marketplace.domain.errors import IllegalTransition, Malformed
from marketplace.domain.money.transaction import TxEvent, TxState
from tests.unit.support import snapshot as s

ADA = s.ADA


def _payment(amount: int = 7 * ADA):
    return plans.pay(s.snapshot(), s.funds(50 * ADA), [Out(s.payout_address("p"), amount)]).finish()


def _witness_set(tx_id: bytes, name: str = "wallet", tagged: bool = False) -> bytes:
    signer = s.WALLET.signer if name == "wallet" else s.key(name)
    rows: object = [[signer.verify_key, signer.sign(tx_id)]]
    return cbor2.dumps({0: cbor2.CBORTag(258, rows) if tagged else rows})


@pytest.mark.parametrize("tagged", [False, True])
def test_witnesses_go_in_and_the_body_stays(tagged: bool) -> None:
    unsigned = _payment()
    signed = txbytes.insert_witnesses(unsigned.bytes, _witness_set(unsigned.tx_id, tagged=tagged))
    assert txbytes.split(signed).body == unsigned.body
    assert signed == unsigned.sign(s.WALLET.signer).bytes


def test_a_body_in_another_encoding_is_never_written_anew() -> None:
    """Wallets and libraries differ in lists, maps and widths; the id is of the bytes as they
    came.
    """
    body = bytes.fromhex("bf00d901029f825820" + "11" * 32 + "1800ff0180021a000001f4ff")
    other = b"\xa1\x04\x9f\x01\xff"  # a witness of another kind, with an open list
    tx = b"\x84" + body + other + b"\xf5\xf6"
    signed = txbytes.insert_witnesses(tx, _witness_set(blake2b_256(body)))
    assert signed.startswith(b"\x84" + body)
    assert signed.endswith(b"\x04\x9f\x01\xff\xf5\xf6")
    assert txbytes.split(signed).tx_id == blake2b_256(body)
    assert txbytes.inputs_of(signed) == (OutRef(b"\x11" * 32, 0),)


def test_signatures_over_anything_else_are_refused() -> None:
    unsigned = _payment()
    for witness_set in (
        _witness_set(_payment(8 * ADA).tx_id),
        b"\xa0",
        b"\x80",
        b"",
        b"\xa1\x00\x80",
    ):
        with pytest.raises(Malformed):
            txbytes.insert_witnesses(unsigned.bytes, witness_set)


@given(st.data())
def test_mangled_transactions_are_malformed_and_nothing_worse(data: st.DataObject) -> None:
    whole = _WHOLE
    cut = data.draw(st.integers(0, len(whole) - 1))
    for mangled in (whole[:cut], whole[:cut] + b"\xff" + whole[cut + 1 :], whole + b"\x00"):
        try:
            parts = txbytes.split(mangled)
        except Malformed:
            continue
        assert parts.join() == mangled


_WHOLE = _payment().sign(s.WALLET.signer).bytes


def test_what_a_transaction_spends_makes_and_until_when() -> None:
    unsigned = _payment()
    assert txbytes.inputs_of(unsigned.bytes) == unsigned.inputs
    assert txbytes.outputs_of(unsigned.bytes) == unsigned.made
    assert txbytes.until_of(unsigned.bytes) == unsigned.until == 150_000_900
    assert txbytes.settle_redeemers(unsigned.bytes) == ()


def test_a_wallets_outputs_are_read_as_cip_30_gives_them() -> None:
    made = _payment().made[0]
    place = [made.ref.tx_id, made.ref.index]
    legacy = cbor2.dumps([place, [made.address, made.lovelace]])
    modern = cbor2.dumps([place, {0: made.address, 1: [made.lovelace, {b"\x01" * 28: {b"x": 5}}]}])
    assert txbytes.read_utxo(legacy) == made
    assert txbytes.read_utxo(modern).assets == ((b"\x01" * 28 + b"x", 5),)
    for broken in (b"", b"\x80", cbor2.dumps([place]), cbor2.dumps([[b"", "x"], {}])):
        with pytest.raises(Malformed):
            txbytes.read_utxo(broken)


def _record(n: int) -> TxRecord:
    signed = _payment((n + 2) * ADA).sign(s.WALLET.signer)
    return TxRecord(signed.tx_id, signed.bytes, f"test {n}")


def test_the_log_is_the_machine_and_survives_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"

    async def story() -> None:
        log, one, two = FileLog(path), _record(1), _record(2)
        await log.put(one)
        await log.put(one.step(TxEvent.SENT))
        with path.open("a") as torn:
            torn.write('["deadbeef", "00')  # a crash in the middle of a write
        again = FileLog(path)
        [found] = await again.pending()
        assert (found.state, found.cbor) == (TxState.SUBMITTED, one.cbor)
        await again.put(two)
        assert [r.purpose for r in await FileLog(path).pending()] == ["test 1", "test 2"]
        await again.put(two.step(TxEvent.IMPOSSIBLE))
        assert [r.purpose for r in await FileLog(path).pending()] == ["test 1"]
        with pytest.raises(IllegalTransition):
            two.step(TxEvent.IMPOSSIBLE).step(TxEvent.SENT)

    anyio.run(story)


def test_processes_share_a_log(tmp_path: Path) -> None:
    async def story() -> None:
        mine, theirs = FileLog(tmp_path / "log.jsonl"), FileLog(tmp_path / "log.jsonl")
        await mine.put(_record(1))
        assert len(await theirs.pending()) == 1
        await theirs.put(_record(2))
        assert len(await mine.pending()) == 2

    anyio.run(story)


def test_finished_transactions_leave_a_grown_file(tmp_path: Path) -> None:
    async def story() -> None:
        path = tmp_path / "log.jsonl"
        log, company = FileLog(path, compact_above=6_000), FileLog(path)
        for n in range(20):
            await log.put(_record(n))
            if n != 3:
                await log.put(_record(n).step(TxEvent.IMPOSSIBLE))
        assert path.stat().st_size < 8_000
        for view in (log, company, FileLog(path)):
            assert [r.purpose for r in await view.pending()] == ["test 3"]
            assert (await view.pending())[0].cbor == _record(3).cbor

    anyio.run(story)
