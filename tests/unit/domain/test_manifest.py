"""What an image is made of is believed only as far as its digest proves it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from marketplace.domain.errors import Malformed
from marketplace.domain.work.manifest import Layer, digest_of, layers

CONFIG = {"digest": "sha256:" + "c" * 64, "size": 7}
LAYERS = [{"digest": "sha256:" + f"{n:064x}", "size": 100 + n} for n in range(3)]
MANIFEST = json.dumps({"schemaVersion": 2, "config": CONFIG, "layers": LAYERS})
INDEX = json.dumps(
    {"manifests": [{"digest": "sha256:" + "0" * 64}, {"digest": digest_of(MANIFEST)}]}
)
MADE_OF = tuple(Layer(str(one["digest"]), int(str(one["size"]))) for one in (CONFIG, *LAYERS))


def test_a_manifest_and_an_index_with_one() -> None:
    assert layers(digest_of(MANIFEST), [MANIFEST]) == MADE_OF
    assert layers(digest_of(INDEX), [INDEX, MANIFEST]) == MADE_OF


def manifest(**other: Any) -> str:
    return json.dumps({"config": CONFIG, "layers": LAYERS, **other})


HUGE = manifest(note="x" * 70_000)
WRONG: dict[str, tuple[str, list[str]]] = {
    "nothing": (digest_of(MANIFEST), []),
    "another's": ("sha256:" + "0" * 64, [MANIFEST]),
    "a changed size": (digest_of(MANIFEST), [MANIFEST.replace("101", "1")]),
    "an index alone": (digest_of(INDEX), [INDEX]),
    "an index with a manifest that it does not name": (digest_of(INDEX), [INDEX, manifest()]),
    "a manifest and more": (digest_of(MANIFEST), [MANIFEST, MANIFEST]),
    "three": (digest_of(INDEX), [INDEX, MANIFEST, MANIFEST]),
    "too long": (digest_of(HUGE), [HUGE]),
    "no JSON": (digest_of("{"), ["{"]),
    "a list": (digest_of("[]"), ["[]"]),
    "deep": (digest_of("[" * 60_000), ["[" * 60_000]),
    "no layers": (digest_of('{"config": {}}'), ['{"config": {}}']),
    **{
        name: (digest_of(text), [text])
        for name, text in {
            "a negative size": manifest(config={**CONFIG, "size": -1}),
            "a size in words": manifest(config={**CONFIG, "size": "7"}),
            "a digest that is none": manifest(config={**CONFIG, "digest": "md5:0"}),
            "layers that are none": manifest(layers="x"),
            "a thousand layers": manifest(layers=[LAYERS[0]] * 513),
        }.items()
    },
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_proven_is_refused(name: str) -> None:
    digest, documents = WRONG[name]
    with pytest.raises(Malformed):
        layers(digest, documents)
