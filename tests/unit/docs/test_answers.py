"""The OpenAPI document leaves nothing unsaid: every body has a shape, every field its words."""

from __future__ import annotations

from typing import Any, cast

import jsonschema_rs
import pytest

from marketplace.process import reference

Json = dict[str, Any]
FREE = {
    "Event.detail",
    "HookEvent.detail",
    "Problem.fields",
}  # facts that differ by kind and by code
DOCUMENT: Json = reference.schema()
SHAPES: Json = DOCUMENT["components"]["schemas"]
OPERATIONS: list[tuple[str, Json]] = [
    (f"{method} {path}", operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]


def _untyped(schema: Any) -> bool:
    """Whether something within says nothing of its type."""
    if not isinstance(schema, dict) or not schema:
        return True
    one = cast(Json, schema)
    if "$ref" in one or "enum" in one or "const" in one:
        return False
    within: list[Any] = [*one.get("anyOf", []), *one.get("prefixItems", [])]
    if one.get("type") == "array" and "prefixItems" not in one:
        within.append(one.get("items"))
    if one.get("type") == "object" and not one.get("properties"):
        within.append(one.get("additionalProperties"))
    return not ("type" in one or "anyOf" in one) or any(_untyped(each) for each in within)


def test_every_shape_and_every_field_is_described() -> None:
    bare = [name for name, shape in SHAPES.items() if not shape.get("description")]
    for name, shape in SHAPES.items():
        for field, about in shape.get("properties", {}).items():
            if not about.get("description"):
                bare.append(f"{name}.{field}")
    for name, operation in OPERATIONS:
        bare += [
            f"{name} {parameter['name']}"
            for parameter in operation.get("parameters", [])
            if not parameter.get("description")
        ]
    assert not bare


def test_no_field_is_untyped_but_the_facts_of_an_event_and_of_a_problem() -> None:
    free = {
        f"{name}.{field}"
        for name, shape in SHAPES.items()
        for field, about in shape.get("properties", {}).items()
        if _untyped(about)
    }
    assert free == FREE


@pytest.mark.parametrize(("name", "operation"), OPERATIONS, ids=[name for name, _ in OPERATIONS])
def test_every_body_is_typed_and_every_refusal_a_problem(name: str, operation: Json) -> None:
    bodies = [operation["requestBody"]] if "requestBody" in operation else []
    for status, answer in operation["responses"].items():
        bodies.append(answer)
        if status >= "400":
            problem = {"$ref": "#/components/schemas/Problem"}
            assert answer["content"] == {"application/problem+json": {"schema": problem}}
    for body in bodies:
        assert body["content"], name
        for kind, media in body["content"].items():
            schema = media.get("schema", media.get("itemSchema"))
            assert schema and not _untyped(schema), (name, kind)
            if kind == "application/json":
                shown = schema.get("anyOf", [schema])
                assert all("$ref" in one or one.get("type") == "null" for one in shown), name


def test_every_answer_of_json_has_an_example_that_is_one() -> None:
    bare: list[str] = []
    for name, operation in OPERATIONS:
        for status, answer in operation["responses"].items():
            media = answer.get("content", {}).get("application/json")
            if status >= "300" or media is None:
                continue
            if "example" not in media:
                bare.append(f"{name} {status}")
                continue
            whole = {**media["schema"], "components": DOCUMENT["components"]}
            judge = jsonschema_rs.Draft202012Validator(whole)
            if not judge.is_valid(media["example"]):
                bare.append(f"{name} {status}: not as its shape says")
    assert not bare, (
        bare, "run TALLY_WRITE_GOLDEN=1 pytest tests/integration/market/test_every_answer.py, then"
        " TALLY_WRITE_GOLDEN=1 pytest tests/unit/docs/test_api_page.py"
    )  # fmt: skip
