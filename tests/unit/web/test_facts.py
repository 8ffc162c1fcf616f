"""The page refuses an open that is another channel's, with its place, as the command line does."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from contracts import blueprint
from marketplace.chain.encoding import address
from marketplace.chain.encoding.datum import stage_bytes
from marketplace.domain.money.channel import Consts, Open
from tests.requires import need_node

ROOT = Path(__file__).parents[3]
PROGRAM = """
import { readFileSync } from "node:fs";
const { seen, channel, over } = JSON.parse(readFileSync(0, "utf8"));
globalThis.fetch = async () => ({ status: seen ? 200 : 404, ok: Boolean(seen), json: async () => seen });
const { facts } = await import("./web/assets/chain/chain.js");
let answer;
try {
  const found = await facts({ url: "http://chain.example" }, channel, "", over);
  answer = found && { funded: String(found.funded), held: String(found.held) };
} catch (error) {
  answer = { rule: error.rule ?? String(error), way: error.way, text: error.message };
}
console.log(JSON.stringify(answer));
"""
VK, TX = bytes(range(32)), "ab" * 32
RECEIPT: dict[str, Any] = {"body": "", "signature": ""}


def says(seen: Any, over: bool = True, **channel: Any) -> Any:
    row = {
        "session_vk": VK.hex(),
        "open_tx": TX,
        "index": 0,
        "receipts": [RECEIPT],
        "voucher": None,
    }
    done = subprocess.run(
        [str(need_node()), "--input-type=module", "-e", PROGRAM], cwd=ROOT, timeout=120, check=False,
        input=json.dumps({"seen": seen, "channel": row | channel, "over": over}),
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[:500]
    return json.loads(done.stdout)


def shown(session_vk: bytes = VK, index: int = 0, script: bytes | None = None) -> Any:
    """What a chain's face says of a transaction that opened a channel."""
    stage = Open(Consts(session_vk, bytes(28), bytes(28), bytes(28), 60_000, 50), 0)
    script = script or blueprint.ada().stub_hash
    where = address.to_text(address.channel_address(script, None, mainnet=False))
    output = {
        "address": where, "amount": [{"unit": "lovelace", "quantity": "5000000"}],
        "output_index": index, "inline_datum": stage_bytes(stage).hex(), "consumed_by_tx": None,
    }  # fmt: skip
    return {"outputs": [output]}


def test_the_channel_that_was_opened_there_is_found() -> None:
    assert says(shown()) == {"funded": "5000000", "held": "5000000"}


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (None, "is in no block of this chain"),
        ({"outputs": []}, "holds another output"),
        (shown(bytes(32)), "holds another output"),
        (shown(index=1), "holds another output"),
        (shown(script=b"\x05" * 28), "holds another output"),
    ],
    ids=[
        "no such transaction",
        "no output",
        "another channel",
        "another index",
        "no script of ours",
    ],
)
def test_an_open_of_something_else_is_refused_with_its_place(seen: Any, why: str) -> None:
    said = says(seen)
    assert (said["rule"], said["way"]) == ("I2", "open")
    assert said["text"] == f"channel {VK.hex()[:16]}: {TX}#0 did not open it; it {why}"


def test_receipts_without_an_open_are_refused_and_nothing_delivered_is_not() -> None:
    assert says(None, open_tx="")["way"] == "open"
    assert says(None, open_tx="", receipts=[]) is None


def test_a_job_that_runs_may_be_ahead_of_its_block_and_not_of_another_output() -> None:
    assert says(None, over=False) is None
    assert says({"outputs": []}, over=False)["way"] == "open"
