"""``python -m marketplace.process.reference docs/api.md``: the API's reference page, from its
OpenAPI.

What is written by hand stays above the first ``## `` heading of the page; the rest is replaced.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any, Final, cast

from marketplace.process.app import build
from marketplace.process.main import Config, assemble

Json = dict[str, Any]
_METHODS: Final = ("get", "put", "post", "delete", "patch")


def schema() -> Json:
    """The OpenAPI document of this version, of a market that never runs."""
    with tempfile.TemporaryDirectory() as folder:
        parts = assemble(Config(db=f"sqlite:///{folder}/market.db", blob_folder=folder))
        try:
            return build(parts.parts).openapi()
        finally:
            parts.database.close()


def reference(openapi: Json) -> str:
    """One section a tag: its operations with what they take and answer; then what has a shape."""
    by_tag: dict[str, list[str]] = {}
    for path, methods in cast("dict[str, Json]", openapi["paths"]).items():
        for method in _METHODS:
            if method in methods:
                operation = cast(Json, methods[method])
                tag = str((operation.get("tags") or ["process"])[0])
                by_tag.setdefault(tag, []).append(_operation(openapi, method, path, operation))
    parts = [f"## {tag}\n\n" + "\n".join(operations) for tag, operations in by_tag.items()]
    shapes = cast("dict[str, Json]", openapi["components"]["schemas"])
    bodies = [_shape(name, shapes[name]) for name in sorted(shapes) if not name.endswith("Body")]
    return "\n".join([*parts, "## shapes\n\n" + "\n".join(bodies)])


def page(head: str, openapi: Json) -> str:
    """The whole page: *head*, up to its first heading of the second level, and the reference."""
    return head.partition("\n## ")[0].rstrip() + "\n\n" + reference(openapi)


def _operation(openapi: Json, method: str, path: str, operation: Json) -> str:
    auth = "" if operation.get("security") else " · no sign-in"
    lines = [f"### `{method.upper()} {path}`", ""]
    told = [str(operation.get("summary", "")), str(operation.get("description", ""))]
    lines += [
        " ".join(f"{text.rstrip('.')}." for text in told if text).replace("\n", " ") + auth,
        "",
    ]
    for parameter in cast("list[Json]", operation.get("parameters") or []):
        if parameter["in"] == "path" or parameter["name"] == "Idempotency-Key":
            continue
        about = parameter.get("description") or ""
        lines.append(f"- `{parameter['name']}` ({parameter['in']}) {about}".rstrip())
    lines += _body(openapi, operation)
    if lines[-1]:
        lines.append("")
    answers = cast("dict[str, Json]", operation.get("responses", {}))
    refusals = [code for code in sorted(answers) if int(code) >= 400]
    told_of = [f"{code} {_media(answers[code])}" for code in sorted(answers) if int(code) < 400]
    if refusals:
        told_of.append(f"{', '.join(refusals)} {_media(answers[refusals[0]])}")
    lines += [f"Answers {'; '.join(told_of)}.", ""]
    return "\n".join(lines)


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
        text = _type(schema) if "json" in kind else f"`{kind}`" + (f" ({about})" if about else "")
        shown.append(text)
    return " or ".join(shown)


def _events(item: Json) -> str:
    """The events of a stream, each with the shape of its data."""
    fields = [cast(Json, event["properties"]) for event in item["anyOf"]]
    told_of = [f"`{f['event']['const']}` ({_type(f['data']['contentSchema'])})" for f in fields]
    return ", ".join(told_of)


def _shape(name: str, model: Json) -> str:
    """A shape's fields, each with its type and what it says."""
    lines = [f"### Shape `{name}`", "", f"{str(model.get('description', '')).rstrip('.')}.", ""]
    needed = cast("list[str]", model.get("required") or [])
    for field, about in cast("dict[str, Json]", model.get("properties") or {}).items():
        lines.append(_field(field, about, field in needed))
    if "enum" in model:
        lines.append(f"- {_type(model)}")
    others = model.get("additionalProperties")
    if others:
        lines.append(f"- any other name ({_type(others)}) {others.get('description', '')}".rstrip())
    return "\n".join([*lines, ""] if lines[-1] else lines)


def _field(name: str, about: Json, needed: bool) -> str:
    optional = "" if needed else ", optional"
    return f"- `{name}` ({_type(about)}{optional}) {about.get('description') or ''}".rstrip()


def _type(schema: Json) -> str:
    """A schema in a few words, shapes as links."""
    options = cast("list[Json]", schema.get("anyOf") or [])
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        words = f"[{name}](#shape-{name.lower()})"
    elif options:
        words = " or ".join(_type(one) for one in options)
    elif "enum" in schema or "const" in schema:
        values = cast("list[str]", schema.get("enum") or [schema.get("const")])
        words = ", ".join(f"`{value}`" if value else "empty" for value in values)
    elif "prefixItems" in schema:
        words = f"[{', '.join(_type(one) for one in cast('list[Json]', schema['prefixItems']))}]"
    elif "items" in schema:
        words = f"list of {_type(schema['items'])}"
    elif isinstance(schema.get("additionalProperties"), dict):
        words = f"map of {_type(schema['additionalProperties'])}"
    else:
        words = str(schema.get("type") or "value")
    return words


def _body(openapi: Json, operation: Json) -> list[str]:
    content = cast(Json, cast(Json, operation.get("requestBody") or {}).get("content") or {})
    lines: list[str] = []
    for kind, media in content.items():
        name = str(cast(Json, media.get("schema") or {}).get("$ref", "")).rpartition("/")[2]
        model = cast(Json, openapi["components"]["schemas"].get(name) or {})
        needed = cast("list[str]", model.get("required") or [])
        fields = cast("dict[str, Json]", model.get("properties") or {})
        if not fields:
            lines.append(f"- body: `{kind}`")
        lines += [_field(field, about, field in needed) for field, about in fields.items()]
    return lines


def main() -> None:
    """Write the page that is named anew."""
    path = Path(sys.argv[1])
    path.write_text(page(path.read_text(), schema()))


if __name__ == "__main__":
    main()
