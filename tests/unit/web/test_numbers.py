"""What the page reckons with beyond 2^53, where its numbers are BigInt and its other numbers
end.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from marketplace.domain.metering import kinds
from tests.requires import need_node
from tests.unit.support.payer import ADAPTER, Paper, signed_terms, terms

ROOT = Path(__file__).parents[3]
ASSETS = "./web/assets"


def page(program: str, given: Any = None) -> Any:
    """What *program*, a body of an async function of ``given``, returns."""
    whole = f"""
    import {{ readFileSync }} from "node:fs";
    const hex = (text) => Uint8Array.from(Buffer.from(text, "hex"));
    const work = async (given) => {{ {program} }};
    console.log(JSON.stringify(await work(JSON.parse(readFileSync(0, "utf8")))));
    """
    done = subprocess.run(
        [str(need_node()), "--input-type=module", "-e", whole], cwd=ROOT, timeout=120, check=False,
        input=json.dumps(given), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[:800]
    return json.loads(done.stdout)


QUOTE = f"""
const {{ quoteFault, readTerms, workOf }} = await import("{ASSETS}/money/records.js");
const {{ fromHex, toHex }} = await import("{ASSETS}/crypto/bytes.js");
const spec = {{
  placement: {{ providers: [], not_providers: [] }}, version: 2,
  price: {{ max_gpu_rate: 0, max_core_rate: 0, budget: 5_000_000 }},
  policy: {{ max_duration_ms: 3_600_000 }},
  resources: [{{ cpu: {{ least: 1000 }}, gpu: {{ count: {{ least: 1, most: 1 }}, share: 1000 }} }}],
}};
return given.map((body) => {{
  const terms = {{ ...readTerms(fromHex(body)), work: workOf(spec) }};
  const wanted = {{ job: "job_1", magic: 42, spec, account: toHex(terms.consumer_vkh), sessionVk: terms.session_vk, spent: 1 }};
  return quoteFault(terms, wanted, 0);
}});
"""


def test_terms_beyond_any_budget_are_refused_in_words() -> None:
    huge = [terms(ceiling=2**60), terms(ceiling=1_000_000, units_milli=2**60), terms(ceiling=10**6)]
    assert page(QUOTE, [one.encode().hex() for one in huge]) == [
        "its ceiling exceeds the budget",
        "it bills more devices, share or cores than were asked for",
        None,
    ]


def test_neither_a_volume_nor_cores_are_billed_as_the_other() -> None:
    """As in Python: tests/unit/client/test_quotes.py."""
    volume = """resources: [{ cpu: { least: 0 }, disk: { least: 2000 } }], kind: "volume" };"""
    cores = QUOTE[QUOTE.index("  resources:") : QUOTE.index("};") + 2]
    kinds_of = [terms(resource=kind, units_milli=1000, ceiling=10**6) for kind in ("disk", "core")]
    asked = [
        one.encode().hex()
        for one in [*kinds_of, terms(resource="disk", units_milli=1955, ceiling=10**6)]
    ]
    refused = "it bills more devices, share or cores than were asked for"
    assert page(QUOTE.replace(cores, volume), asked) == [None, refused, refused]
    plain = QUOTE.replace(cores, """resources: [{ cpu: { least: 1000 } }] };""")
    assert page(plain, asked) == [refused, None, refused]


DECIDE = f"""
const payer = await import("{ASSETS}/money/payer.js");
const [terms, adapter, session, body, signature] = given.map(hex);
const lease = payer.newLease(terms, adapter, 10n ** 7n);
const book = payer.newBook({{ id: given[2], capacity: 10n ** 7n, leases: {{ lease_1: lease }} }});
const {{ missing }} = await payer.decide(book, body, signature, 0);
return missing.map(String);
"""


def test_a_receipt_from_far_ahead_leaves_a_gap_like_any_other() -> None:
    both, first = signed_terms(terms()), Paper().tick(terms(), 1000)
    far = type(first).sign(replace(first.receipt, seq=2**62), ADAPTER)
    given = [both.body, both.adapter_signature, first.receipt.session_vk, far.body, far.signature]
    assert page(DECIDE, [one.hex() for one in given]) == ["1", str(2**62 - 1)]


def test_an_amount_that_no_number_holds_to_the_lovelace_is_no_amount() -> None:
    asked = ["9007199254.740991", "9007199254.740992", "999999999999.999999", "2.5"]
    program = f'const {{ parseAda }} = await import("{ASSETS}/money/units.js"); return given.map(parseAda);'
    assert page(program, asked) == [2**53 - 1, None, None, 2_500_000]


def test_the_page_knows_the_kinds_of_resources_that_we_know_and_says_them_alike() -> None:
    shown = page(
        f"""const {{ KINDS, units }} = await import("{ASSETS}/money/kinds.js");
        return {{ kinds: KINDS, words: given.map(([units_milli, kind]) => units(units_milli, kind)) }};""",
        asked := [
            (milli, name) for name in kinds.KINDS for milli in (125, 500, 1000, 1500, 64_000)
        ],
    )
    assert shown["kinds"] == {
        name: {"word": k.word, "words": k.words, "devices": k.devices, "cap": k.cap}
        for name, k in kinds.KINDS.items()
    }
    assert shown["words"] == [kinds.show_units(*one) for one in asked]
