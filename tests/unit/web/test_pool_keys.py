"""The console and the TypeScript client tell a block producer's key as the other clients do."""

from __future__ import annotations

from base64 import b64encode

from tests.unit.support.pool_keys import refused, taken
from tests.unit.web.test_numbers import ASSETS, page

HELD = f"""
const {{ poolKeyIn }} = await import("{ASSETS}/crypto/pool_keys.js");
return given.map((data) => poolKeyIn(new Uint8Array(Buffer.from(data, "base64"))));
"""


def test_each_form_is_told_as_elsewhere() -> None:
    every = [*refused(), *((name, data, "") for name, data in taken())]
    found = page(HELD, [b64encode(data).decode() for _, data, _ in every])
    assert dict(zip((name for name, _, _ in every), found, strict=True)) == {
        name: holds for name, _, holds in every
    }


def test_it_is_found_in_the_middle_of_a_long_file() -> None:
    key = next(data for name, data, _ in refused() if name.startswith("Kes"))
    for before in (1024 * 1024 - 700, 1024 * 1024 + 1, 3 * 1024 * 1024):
        [found] = page(HELD, [b64encode(b"x" * before + key + b"y" * 70_000).decode()])
        assert found == "a KES signing key"
