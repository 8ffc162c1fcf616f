"""What is committed is what the source says, and stays what was audited."""

from __future__ import annotations

import json

import pytest
import uplc
from uplc import ast as u

from contracts import blueprint
from contracts.channel import compiler, settle
from contracts.channel.compiler import Token, compile_settle, compile_stub
from tests.contracts.support.scenes import h28

# A change of either is a new deployment: every open channel keeps the old address.
SETTLE_HASH = "2809d4d249f383c0a9f55e0c640854f0cf3ecfcee69876dbf5f5bed2"
STUB_HASH = "b85fd8113bfd7171b04296a0a317cb9c2f469a62c526930c64fb9d90"


def test_plutus_json_is_what_the_source_compiles_to() -> None:
    assert compiler.BLUEPRINT.read_text(encoding="utf-8") == compiler.text()


def test_hashes_are_pinned() -> None:
    ada = blueprint.ada()
    assert ada.settle_hash.hex() == SETTLE_HASH
    assert ada.stub_hash.hex() == STUB_HASH
    document = json.loads(compiler.BLUEPRINT.read_text(encoding="utf-8"))
    hashes = {v["title"]: v["hash"] for v in document["validators"]}
    assert hashes["ada.settle"] == SETTLE_HASH
    assert hashes["ada.stub"] == STUB_HASH


def test_size_gate() -> None:
    ada = blueprint.ada()
    assert len(ada.settle_cbor) + len(ada.stub_cbor) <= 1_500  # the gate is 3,000


@pytest.mark.parametrize("name", [b"", b"USDM", bytes(23), bytes(24), bytes(range(32))])
def test_token_instance_is_the_compiled_source_applied(name: bytes) -> None:
    policy = h28("policy", name)
    scripts = blueprint.token(policy, name)
    program = uplc.unflatten(compile_settle(Token()))
    applied = uplc.tools.apply(program, u.PlutusByteString(policy), u.PlutusByteString(name))
    assert scripts.settle_cbor == uplc.flatten(applied)
    assert scripts.stub_cbor == compile_stub(scripts.settle_hash)
    assert scripts.stub_hash == blueprint.script_hash(scripts.stub_cbor)


def test_instances_differ() -> None:
    hashes = {blueprint.ada().stub_hash}
    hashes |= {blueprint.token(h28(i), name).stub_hash for i in range(3) for name in (b"", b"A")}
    assert len(hashes) == 7


@pytest.mark.parametrize(
    ("policy", "name"), [(bytes(27), b""), (bytes(29), b""), (bytes(28), bytes(33))]
)
def test_malformed_tokens_are_refused(policy: bytes, name: bytes) -> None:
    with pytest.raises(ValueError, match="28-byte policy"):
        blueprint.token(policy, name)


def test_readme_numbers_the_guards_as_the_source_does() -> None:
    readme = (compiler.BLUEPRINT.parent / "README.md").read_text(encoding="utf-8")
    rows = {
        row.split("|")[2].strip().strip("`"): int(row.split("|")[1])
        for row in readme.splitlines()
        if row.startswith("| ") and row.split("|")[1].strip().isdigit()
    }
    assert sorted(rows.values()) == list(range(1, 19))
    assert {name: getattr(settle, name) for name in rows} == rows


def test_both_are_plutus_core_1_1_0() -> None:
    for script in (blueprint.ada().settle_cbor, blueprint.ada().stub_cbor):
        assert uplc.unflatten(script).version == (1, 1, 0)
        assert uplc.flatten(uplc.unflatten(script)) == script
