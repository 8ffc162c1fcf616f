"""``python -m marketplace.process.reference docs/api.md``: the API's reference page, from its OpenAPI.

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
    """One section a tag: its operations with what they take and the refusals they may answer."""
    by_tag: dict[str, list[str]] = {}
    for path, methods in cast("dict[str, Json]", openapi["paths"]).items():
        for method in _METHODS:
            if method in methods:
                operation = cast(Json, methods[method])
                tag = str((operation.get("tags") or ["process"])[0])
                by_tag.setdefault(tag, []).append(_operation(openapi, method, path, operation))
    parts = [f"## {tag}\n\n" + "\n".join(operations) for tag, operations in by_tag.items()]
    return "\n".join(parts)


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
    codes = sorted(str(code) for code in operation.get("responses", {}))
    lines += [f"Answers {', '.join(codes)}.", ""]
    return "\n".join(lines)


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
        for field, about in fields.items():
            optional = "" if field in needed else ", optional"
            shape = str(about.get("type") or "value")
            lines.append(
                f"- `{field}` ({shape}{optional}) {about.get('description') or ''}".rstrip()
            )
    return lines


def main() -> None:
    """Write the page that is named anew."""
    path = Path(sys.argv[1])
    path.write_text(page(path.read_text(), schema()))


if __name__ == "__main__":
    main()
