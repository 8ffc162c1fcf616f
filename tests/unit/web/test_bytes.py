"""The page's decoder meets the same bytes: each is refused as what it is, at once."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.requires import need_node
from tests.unit.support.bytes import bombs

ROOT = Path(__file__).parents[3]
PROGRAM = """
import { decode, CborError } from "./web/assets/crypto/cbor.js";
import { readFileSync } from "node:fs";
const found = {};
for (const [name, hex] of Object.entries(JSON.parse(readFileSync(0, "utf8")))) {
  const begun = performance.now();
  try { decode(Uint8Array.from(Buffer.from(hex, "hex"))); found[name] = ["read", 0]; }
  catch (e) { found[name] = [e instanceof CborError ? "refused" : String(e), 0]; }
  found[name][1] = performance.now() - begun;
}
console.log(JSON.stringify(found));
"""
PLAIN = {"decimal overflow", "bigfloat", "bigfloat of a huge exponent", "rational by zero", "date",
         "address", "itself", "regular expression", "classes", "a big integer",
         "many empty pieces"}  # fmt: skip
"""Tags mean nothing to it, and stay tags."""


def test_the_page_reads_or_refuses_each_at_once() -> None:
    given = {name: raw.hex() for name, raw in bombs(20_000).items()}
    done = subprocess.run(
        [str(need_node()), "--input-type=module", "-e", PROGRAM], cwd=ROOT, timeout=120, check=False,
        input=json.dumps(given), capture_output=True, text=True,
    )  # fmt: skip
    found = json.loads(done.stdout or "{}")
    assert found.keys() == given.keys(), done.stderr[:500]
    for name, (how, spent_ms) in found.items():
        assert how == ("read" if name in PLAIN else "refused"), (name, how)
        assert spent_ms < 5_000, (name, spent_ms)
