"""The browser's verifier, unmodified, in node: many cases in one process."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.requires import need_node

ASSETS = Path(__file__).parents[3] / "web" / "assets"
SCRIPT = """
import { createInterface } from "node:readline";
import { write } from "./crypto/strictjson.js";
import { readEvidence } from "./money/evidence.js";
import { reconcile } from "./money/verify.js";
for await (const line of createInterface({ input: process.stdin })) {
  const { text, ledger } = JSON.parse(line);
  let answer;
  try {
    const bill = await reconcile(readEvidence(text), ledger);
    const told = ({ facts, ...total }) => ({ ...total,
      claimed: facts?.claimed ?? null, refunded: facts?.refunded ?? null, held: facts?.held ?? null,
      funded: facts?.funded ?? null, ended: facts?.ended ?? null });
    bill.channels = bill.channels.map(told);
    if (bill.hops) bill.hops = bill.hops.map(told);
    answer = { rule: "", way: "", bill };
  } catch (error) {
    answer = { rule: error.rule ?? "CRASH", way: error.way ?? String(error.stack), text: error.message };
  }
  console.log(write(answer)); // integers as they are, however large
}
"""


def browser_says(
    cases: Iterable[tuple[str, list[Any]]], timeout_s: float = 600
) -> list[dict[str, Any]]:
    """For each (text, ledger): ``{rule, way, bill | text}``; rule CRASH is an error of the script.

    The assets are copied as they are: node wants to be told that a folder holds modules.
    """
    rows = [json.dumps({"text": text, "ledger": ledger}) for text, ledger in cases]
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ASSETS, folder, dirs_exist_ok=True)
        (Path(folder) / "package.json").write_text('{"type": "module"}')
        (Path(folder) / "says.js").write_text(SCRIPT)
        done = subprocess.run(
            [need_node(), f"{folder}/says.js"], input="\n".join(rows) + "\n",
            capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
