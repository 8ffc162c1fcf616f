"""Where a channel's output went in transactions of a real ledger, as two readers tell it: ours and
the console's.

``tests/golden/landings.json`` holds what a Blockfrost-compatible face says of each transaction
(``/txs/{hash}/utxos``), and for each channel that it spends every place where its rest can be.
``python -m tests.integration.support.landings`` makes the transactions and writes it.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, cast

import anyio
from blockfrost import BlockFrostApi

from marketplace.chain.channels import descent
from marketplace.chain.encoding.utxo import OutRef
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.domain.errors import Malformed
from tests.requires import need_node

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "landings.json"
Places = list[tuple[int, bool]] | None
"""(output, whether it is the refund) in order; None for a transaction that no reader takes apart.
"""

_HEAD = """
import { readFileSync } from "node:fs";
import { landing, landings, movesOf, Unread } from "./web/assets/chain/descent.js";
import { Malformed } from "./web/assets/chain/lax.js";
"""
_PLACES = """
const said = JSON.parse(readFileSync(0, "utf8")).map(({ mine, tx, answer }) => {
  try {
    return landings(mine, movesOf(tx, answer)).map(({ position, ended }) => [position, ended]);
  } catch (error) {
    if (error instanceof Malformed) return null;
    throw error;
  }
});
console.log(JSON.stringify(said));
"""
_REFUSALS = """
const said = JSON.parse(readFileSync(0, "utf8")).map(({ mine, tx, answer }) => {
  try {
    return JSON.stringify(landing(mine, tx, movesOf(tx, answer)));
  } catch (error) {
    if (error instanceof Unread) return error.message;
    throw error;
  }
});
console.log(JSON.stringify(said));
"""


class _Face:
    """Answers as the face did."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self._answer = answer

    def transaction_utxos(self, _tx: str, **_options: object) -> dict[str, Any]:
        """``/txs/{hash}/utxos``."""
        return self._answer


def python_says(asked: list[dict[str, Any]]) -> list[Places]:
    """As adapter, payer and market read every ``{mine, tx, answer}``."""

    async def read(mine: str, tx: str, answer: dict[str, Any]) -> Places:
        chain = ChainReader(cast(BlockFrostApi, _Face(answer)), 42, 60.0)
        moves = await chain.moves(bytes.fromhex(tx))
        assert moves is not None
        outputs = [o.utxo for o in moves.outputs]
        try:
            found = descent.landings(OutRef.parse(mine), moves.inputs, outputs, b"")
        except Malformed:
            return None
        return sorted((one.position, one.ended) for one in found)

    async def every() -> list[Places]:
        return [await read(one["mine"], one["tx"], one["answer"]) for one in asked]

    return anyio.run(every)


def page_says(asked: list[dict[str, Any]]) -> list[Places]:
    """The console's own module, unmodified, on every ``{mine, tx, answer}``."""
    said = _node(_PLACES, asked)
    return [one if one is None else sorted((p, e) for p, e in one) for one in said]


def page_refuses(asked: list[dict[str, Any]]) -> list[str]:
    """The words with which the page refuses each; for one that it reads, the place."""
    return _node(_REFUSALS, asked)


def _node(program: str, asked: list[dict[str, Any]]) -> list[Any]:
    done = subprocess.run(
        [str(need_node()), "--input-type=module", "-e", _HEAD + program], cwd=ROOT, timeout=120,
        check=False, input=json.dumps(asked), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
