"""``python -m marketplace.process.reference docs/api.md``: the API's reference page, from its
OpenAPI.

What is written by hand stays above the first ``## `` heading of the page; the rest is replaced.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from marketplace.api.schemas import reading
from marketplace.api.schemas.reading import Json, type_of
from marketplace.process.app import build
from marketplace.process.main import Config, assemble


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
    for tag, method, path, operation in reading.operations(openapi):
        by_tag.setdefault(tag, []).append(_operation(openapi, method, path, operation))
    parts = [f"## {tag}\n\n" + "\n".join(told) for tag, told in by_tag.items()]
    shapes = [_shape(name, model) for name, model in reading.shapes_of(openapi)]
    return "\n".join([*parts, "## shapes\n\n" + "\n".join(shapes)])


def page(head: str, openapi: Json) -> str:
    """The whole page: *head*, up to its first heading of the second level, and the reference."""
    return head.partition("\n## ")[0].rstrip() + "\n\n" + reference(openapi)


def _operation(openapi: Json, method: str, path: str, operation: Json) -> str:
    auth = "" if operation.get("security") else " · no sign-in"
    lines = [f"### `{method.upper()} {path}`", "", reading.summary_of(operation) + auth, ""]
    for parameter in reading.parameters_of(operation):
        about = parameter.get("description") or ""
        lines.append(f"- `{parameter['name']}` ({parameter['in']}) {about}".rstrip())
    bodies = list(reading.bodies_of(openapi, operation))
    for kind, name, model in bodies:
        fields = list(reading.fields_of(model))
        if not name.endswith("Body"):
            of = f" of [{name}](#shape-{name.lower()})" if name else ""
            lines.append(f"- body: `{kind}`{of}")
        elif len(bodies) > 1:
            said = ", ".join(f"`{field[0]}`" for field in fields[:1])
            lines.append(f"- body: `{kind}` with {said}")
            lines += [f"  {_field(*field)}" for field in fields]
        else:
            lines += [_field(*field) for field in fields]
    if lines[-1]:
        lines.append("")
    told_of = [f"{code} {text}" for code, text in reading.answers_of(operation)]
    lines += [f"Answers {'; '.join(told_of)}.", ""]
    return "\n".join(lines)


def _shape(name: str, model: Json) -> str:
    """A shape's fields, each with its type and what it says."""
    lines = [f"### Shape `{name}`", "", f"{str(model.get('description', '')).rstrip('.')}.", ""]
    lines += [_field(*field) for field in reading.fields_of(model)]
    if "enum" in model:
        lines.append(f"- {type_of(model)}")
    others = model.get("additionalProperties")
    if others:
        lines.append(
            f"- any other name ({type_of(others)}) {others.get('description', '')}".rstrip()
        )
    return "\n".join([*lines, ""] if lines[-1] else lines)


def _field(name: str, about: Json, needed: bool) -> str:
    optional = "" if needed else ", optional"
    return f"- `{name}` ({type_of(about)}{optional}) {about.get('description') or ''}".rstrip()


def main() -> None:
    """Write the page that is named anew."""
    path = Path(sys.argv[1])
    path.write_text(page(path.read_text(), schema()))


if __name__ == "__main__":
    main()
