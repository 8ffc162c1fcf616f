"""The OpenAPI document, read for people: what `docs/api.md` and `/docs` both show of it.

Words are Markdown of one line: `code` and links to shapes, nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast

Json = dict[str, Any]
METHODS: Final = ("get", "put", "post", "delete", "patch")


def operations(openapi: Json) -> Iterator[tuple[str, str, str, Json]]:
    """Tag, method, path and operation of each, as the document orders them."""
    for path, methods in cast("dict[str, Json]", openapi["paths"]).items():
        for method in METHODS:
            if method in methods:
                operation = cast(Json, methods[method])
                yield str((operation.get("tags") or ["process"])[0]), method, path, operation


def summary_of(operation: Json) -> str:
    """What it does, in sentences."""
    told = [str(operation.get("summary", "")), str(operation.get("description", ""))]
    return " ".join(f"{' '.join(text.split()).rstrip('.')}." for text in told if text)


def parameters_of(operation: Json) -> list[Json]:
    """Those that a reader has to be told of: not the path's, which it shows."""
    told = cast("list[Json]", operation.get("parameters") or [])
    return [p for p in told if p["in"] != "path" and p["name"] != "Idempotency-Key"]


def bodies_of(openapi: Json, operation: Json) -> Iterator[tuple[str, str, Json]]:
    """Content type, name and model of each body that it takes; without a name and fields where
    the body is bytes."""
    content = cast(Json, cast(Json, operation.get("requestBody") or {}).get("content") or {})
    for kind, media in content.items():
        schema = cast(Json, media.get("schema") or {})
        refs = [one for one in schema.get("anyOf", ()) if "$ref" in one]
        for one in refs or [schema]:
            yield kind, str(one.get("$ref", "")).rpartition("/")[2], model_of(openapi, one)


def model_of(openapi: Json, schema: Json) -> Json:
    """What a reference points at; nothing for a schema that is none."""
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    return cast(Json, openapi["components"]["schemas"].get(name) or {})


def fields_of(model: Json) -> Iterator[tuple[str, Json, bool]]:
    """Name, schema, and whether it has to be there."""
    needed = cast("list[str]", model.get("required") or [])
    for name, about in cast("dict[str, Json]", model.get("properties") or {}).items():
        yield name, about, name in needed


def shapes_of(openapi: Json) -> list[tuple[str, Json]]:
    """What answers are made of, by name; bodies are told where they are taken."""
    shapes = cast("dict[str, Json]", openapi["components"]["schemas"])
    return [(name, shapes[name]) for name in sorted(shapes) if not name.endswith("Body")]


def answers_of(operation: Json) -> list[tuple[str, str]]:
    """Status and what such an answer holds; the refusals together, since they hold the same."""
    answers = cast("dict[str, Json]", operation.get("responses", {}))
    told = [(code, _media(answers[code])) for code in sorted(answers) if int(code) < 400]
    refusals = [code for code in sorted(answers) if int(code) >= 400]
    if refusals:
        told.append((", ".join(refusals), _media(answers[refusals[0]])))
    return told


def type_of(schema: Json) -> str:
    """A schema in a few words."""
    options = cast("list[Json]", schema.get("anyOf") or [])
    others = schema.get("additionalProperties")

    def one(part: Any) -> str:
        return type_of(cast(Json, part))

    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        words = f"[{name}](#shape-{name.lower()})"
    elif options:
        words = " or ".join(one(option) for option in options)
    elif "enum" in schema or "const" in schema:
        values = cast("list[Any]", schema.get("enum") or [schema.get("const")])
        words = ", ".join(f"`{value}`" if value else "empty" for value in values)
    elif "prefixItems" in schema:
        words = f"[{', '.join(one(part) for part in cast('list[Json]', schema['prefixItems']))}]"
    elif "items" in schema:
        words = f"list of {one(schema['items'])}"
    elif isinstance(others, dict):
        words = f"map of {one(others)}"
    else:
        words = str(schema.get("type") or "value")
    return words


def example_of(openapi: Json, schema: Json) -> Any:
    """A value of *schema*, of the examples and defaults that its fields are told with; what need
    not be given and has no example is left out."""
    model = model_of(openapi, schema) or schema
    told = cast("list[Any]", schema.get("examples") or model.get("examples") or [])
    told = told or [model[key] for key in ("const", "default") if key in model]
    if told:
        return told[0]
    if "properties" in model:
        shown = ((n, example_of(openapi, about), must) for n, about, must in fields_of(model))
        return {name: value for name, value, must in shown if must or value not in (None, "", [])}
    if "enum" in model:
        return model["enum"][0]
    if model.get("type") == "array":
        one = example_of(openapi, cast(Json, model.get("items") or {}))
        return [one] if model.get("minItems") or cast(Json, model["items"]).get("examples") else []
    return None


def examples_of(operation: Json) -> Iterator[tuple[str, Any]]:
    """Status and body of each answer that the document shows an example of."""
    for status, answer in sorted(cast("dict[str, Json]", operation["responses"]).items()):
        for media in cast("dict[str, Json]", answer.get("content") or {}).values():
            if "example" in media:
                yield status, media["example"]


def _media(answer: Json) -> str:
    """What an answer holds, by content type where it is no JSON."""
    content = cast("dict[str, Json]", answer.get("content") or {})
    shown: list[str] = []
    for kind, media in content.items():
        if "itemSchema" in media:
            shown.append(f"`{kind}` of {_events(media['itemSchema'])}")
            continue
        schema = cast(Json, media["schema"])
        about = str(schema.get("description") or "")
        words = type_of(schema) if "json" in kind else f"`{kind}`"
        shown.append(words + (f" ({about})" if about and "json" not in kind else ""))
    return " or ".join(shown)


def _events(item: Json) -> str:
    """The events of a stream, each with the shape of its data."""
    fields = [cast(Json, event["properties"]) for event in item["anyOf"]]
    told = [(f["event"]["const"], type_of(f["data"]["contentSchema"])) for f in fields]
    return ", ".join(f"`{event}` ({words})" for event, words in told)
