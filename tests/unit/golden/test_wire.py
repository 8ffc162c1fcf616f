"""Every kind of frame: its bytes with every field filled and with the optional ones absent."""

from __future__ import annotations

from dataclasses import MISSING, fields

from marketplace.domain.protocol import codec, wire
from tests.unit.support.golden import filled, pinned
from tests.unit.support.pinned import GIVEN


def messages() -> dict[str, wire.Message]:
    """By kind, from the registry that frames are read with."""
    found: dict[str, wire.Message] = {}
    for name, kind in wire.Message.kinds.items():
        if vars(wire).get(name) is not kind:
            continue
        found[name] = filled(kind, GIVEN)
        needed = {f.name for f in fields(kind) if (f.default, f.default_factory) == (MISSING,) * 2}
        if len(needed) < len(fields(kind)):
            all_ = vars(found[name])
            found[f"{name}, least"] = kind(**{field: all_[field] for field in needed})
    return found


def test_every_kind_keeps_its_bytes() -> None:
    made = {name: codec.to_bytes(message) for name, message in messages().items()}
    pinned("wire.json", made, lambda _, data: codec.from_bytes(data))


def test_every_kind_reads_as_what_was_sent() -> None:
    for message in messages().values():
        assert codec.from_bytes(codec.to_bytes(message)) == message
