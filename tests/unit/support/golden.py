"""Bytes that others hold already: what is written today, and every earlier form that must still
read.

A golden file of :func:`pinned` has, by name, a list of forms: each with its bytes and what was read
from them. The last is what is written today. ``TALLY_WRITE_GOLDEN=1 pytest tests/unit/golden``
*adds* the form that differs and leaves the earlier ones: they lie on somebody's disk, or are sent
by a program that nobody updated, and read for ever as the file says. Fields that came later may be
read beside those. :func:`golden` is for what has one form only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints
from zlib import crc32

T = TypeVar("T")
FOLDER = Path(__file__).parents[2] / "golden"
REMEDY = "review the change; then TALLY_WRITE_GOLDEN=1 pytest, and review the file's diff"


def writing() -> bool:
    return bool(os.environ.get("TALLY_WRITE_GOLDEN"))


def golden(name: str, value: object) -> None:
    """*value*, which JSON can hold, is what the file *name* says."""
    path, text = (
        FOLDER / name,
        json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n",
    )
    if writing():
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, f"{name} differs: {REMEDY}"


def pinned(name: str, made: Mapping[str, bytes], read: Callable[[str, bytes], object]) -> None:
    """*made* (bytes by name) is what the file *name* says is written today, and ``read(name,
    bytes)`` finds in every form, today's and earlier ones, what was found when it was pinned.
    """
    path = FOLDER / name
    known: dict[str, list[Any]] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    if writing():
        for one, data in made.items():
            forms = known.setdefault(one, [])
            if not forms or _bytes(forms[-1]) != data:
                forms.append({**_form(data), "reads": shown(read(one, data))})
        text = json.dumps(known, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        path.write_text(text, encoding="utf-8")
    assert known.keys() == made.keys(), f"{name}: {known.keys() ^ made.keys()}: {REMEDY}"
    for one, forms in known.items():
        assert _bytes(forms[-1]) == made[one], f"{name}: {one} is written otherwise: {REMEDY}"
        for number, form in enumerate(forms):
            found = _differs(form["reads"], shown(read(one, _bytes(form))))
            assert not found, f"{name}: form {number} of {one} does not read as it did: {found}"


def _form(data: bytes) -> dict[str, object]:
    """Text as lines, so that a diff of it can be read."""
    text = data.decode("utf-8", "replace")
    if text.encode() == data and text.replace("\n", " ").isprintable():
        return {"text": text.split("\n")}
    return {"hex": data.hex()}


def _bytes(form: Mapping[str, Any]) -> bytes:
    return bytes.fromhex(form["hex"]) if "hex" in form else "\n".join(form["text"]).encode()


def _differs(then: Any, now: Any, at: str = "") -> str:
    """Where *now* does not say what *then* said; empty if it does, with more fields or without."""
    if isinstance(then, dict) and isinstance(now, dict):
        was, is_ = cast(dict[str, Any], then), cast(dict[str, Any], now)
        found = (_differs(v, is_.get(k, "(absent)"), f"{at}.{k}") for k, v in was.items())
        return next((one for one in found if one), "")
    if isinstance(then, list) and isinstance(now, list):
        before, after = cast(list[Any], then), cast(list[Any], now)
        if len(before) != len(after):
            return f"{at}: {len(before)} and now {len(after)} entries"
        pairs = enumerate(zip(before, after, strict=True))
        return next((one for i, (a, b) in pairs if (one := _differs(a, b, f"{at}[{i}]"))), "")
    return "" if then == now else f"{at}: {then!r} and now {now!r}"


def shown(value: object) -> Any:
    """*value* in JSON, field for field: bytes as ``h'…'``, enumerations by name."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: shown(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, bytes):
        return f"h'{value.hex()}'"
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, Mapping):
        rows = cast(Mapping[object, object], value)
        return {str(shown(k)): shown(v) for k, v in rows.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(shown(x) for x in cast(set[object], value))
    if isinstance(value, (list, tuple)):
        return [shown(x) for x in cast(list[object], value)]
    return value


def filled(kind: type[T], given: Mapping[str, Any] | None = None, **own: Any) -> T:
    """A *kind* (a dataclass) with something other than its default in every field: *own* by field,
    else *given* by type or field, else made from the field's type and name. A type that this cannot
    make is an error: give one."""
    hints = get_type_hints(kind)
    values = {
        f.name: own.get(f.name, _made(hints[f.name], f.name, given or {}))
        for f in fields(cast(Any, kind))
        if f.init
    }
    made = kind(**values)
    assert_full(made, except_for=frozenset(own))
    return made


def assert_full(value: object, except_for: frozenset[str] = frozenset()) -> None:
    """No field is at its default, or empty: each shows in the bytes. What is within was made
    full.
    """
    for f in fields(cast(Any, value)):
        if f.name in except_for:
            continue
        now = getattr(value, f.name)
        default = f.default_factory() if f.default_factory is not MISSING else f.default
        assert now != default and now not in (None, 0, "", b"", (), [], {}), (
            f"{type(value).__name__}.{f.name} is not filled: {now!r}"
        )


def enums_in(*kinds: type) -> dict[str, type[Enum]]:
    """Every enumeration that a field of *kinds* holds, however deep, by name."""
    found: dict[str, type[Enum]] = {}
    seen, todo = set[Any](), list[Any](kinds)
    while todo:
        kind = todo.pop()
        if kind in seen:
            continue
        seen.add(kind)
        if isinstance(kind, type) and issubclass(kind, Enum):
            assert found.setdefault(kind.__name__, kind) is kind, f"two kinds of {kind.__name__}"
        elif isinstance(kind, type) and is_dataclass(kind):
            hints = get_type_hints(kind)
            todo += [hints[f.name] for f in fields(kind)]
        else:
            todo += [one for one in get_args(kind) if not isinstance(one, (str, list))]
    return found


def _made(hint: Any, name: str, given: Mapping[str, Any]) -> Any:
    simple = getattr(hint, "__name__", "")
    if name in given:
        return given[name]
    if simple in given:
        return given[simple]
    number = 1000 + crc32(name.encode()) % 9000
    origin, args = get_origin(hint), get_args(hint)
    if hint is bool:
        return True
    if hint is int:
        return number
    if hint is str or hint is Any:
        return f"a {name}"
    if hint is bytes:
        return (name.encode() * 64)[: 64 if "signature" in name else 32]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return list(hint)[-1]
    if isinstance(hint, type) and is_dataclass(hint):
        return filled(hint, given)
    if type(None) in args:
        return _made(next(x for x in args if x is not type(None)), name, given)
    if origin is tuple and args[-1] is not ...:
        return tuple(_made(x, f"{name} {i}", given) for i, x in enumerate(args))
    if origin in (list, tuple):
        return origin(_made(args[0], f"{name} {i}", given) for i in range(2))
    if origin is frozenset:
        return frozenset({_made(args[0], name, given)})
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {_made(args[0], f"{name} key", given): _made(args[1], f"{name} value", given)}
    if args and isinstance(args[-1], str):  # a Literal's
        return args[-1]
    raise AssertionError(f"nothing is known to fill {name} with, which is {hint}")
