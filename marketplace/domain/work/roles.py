"""Members of a cluster that differ: each has a role, which says what it needs and what it runs.

The job that is posted has every role in full. A member's has its own in its own fields, and of each
role the name, the count and a hash: so all members show the same roles, and no provider reads what
another one's member runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from marketplace.domain import canonical
from marketplace.domain.canonical import (
    want_fields,
    want_int,
    want_items,
    want_map,
    want_text,
    want_text_map,
    want_texts,
)
from marketplace.domain.errors import Malformed
from marketplace.domain.work.parts import MOST_MEMBERS, Resources

MOST_ROLES: Final = 8
TOLD_MEMBER: Final = "TALLY_MEMBER"
TOLD_MEMBERS: Final = "TALLY_MEMBERS"
TOLD_ROLE: Final = "TALLY_ROLE"
_TOLD: Final = frozenset({TOLD_MEMBER, TOLD_MEMBERS, TOLD_ROLE})
_NAME: Final = re.compile(r"[a-z](?:[a-z0-9-]{0,30}[a-z0-9])?")
_NUMBERED: Final = re.compile(r"-[0-9]+$")
_TAKEN: Final = frozenset({"member", "guest", "localhost"})
"""Names of hosts in a mesh, or what those begin with."""


def want_role_name(value: object) -> str:
    """*value* if it can be a role's, and so a host's name beside ``member-0``; Malformed."""
    name = want_text(value, "role", 32)
    if not _NAME.fullmatch(name):
        raise Malformed(f"{name!r} is no role: write a-z, 0-9 and -, from a letter, 32 at most")
    if name in _TAKEN or _NUMBERED.search(name):
        raise Malformed(f"{name!r} is no role: such hosts there are already in a cluster's network")
    return name


@dataclass(frozen=True)
class Part:
    """What each member of a role needs and runs, and the *budget* that it has, lovelace."""

    resources: tuple[Resources, ...]
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    budget: int = 0

    def __post_init__(self) -> None:
        """:class:`Malformed` where it sets what each member is told."""
        if told := sorted(_TOLD & self.env.keys()):
            raise Malformed(f"{told[0]} is told to each member: leave it out of env")

    def to_wire(self) -> dict[str, Any]:
        """Every field."""
        return {
            "resources": [one.to_wire() for one in self.resources],
            "command": list(self.command),
            "env": dict(self.env),
            "budget": self.budget,
        }

    @staticmethod
    def from_wire(w: Mapping[str, Any]) -> Part:
        """The reverse; :class:`Malformed`."""
        return Part(
            tuple(map(Resources.from_wire, want_items(w["resources"], "resources", 17))),
            want_texts(w["command"], "command", 1024),
            want_text_map(w["env"], "env", 256),
            want_int(w["budget"], "budget", 1),
        )

    @cached_property
    def hash(self) -> str:
        """blake2b_256 of the canonical part, hex."""
        return canonical.blake2b_256(canonical.encode(self.to_wire())).hex()


@dataclass(frozen=True)
class Role:
    """So many *members* of one *name*. *work*: the hash of its part; *part*: where it is posted,
    and None in what one member shows of all roles.
    """

    name: str
    members: int
    work: str
    part: Part | None = None

    @staticmethod
    def of(name: str, members: int, part: Part) -> Role:
        """As it is posted."""
        return Role(name, members, part.hash, part)

    @property
    def shown(self) -> Role:
        """As each member shows it."""
        return replace(self, part=None)

    def to_wire(self) -> dict[str, Any]:
        """Its part, or else the hash of that."""
        said = {"work": self.work} if self.part is None else self.part.to_wire()
        return {"name": self.name, "members": self.members, **said}

    @staticmethod
    def from_wire(value: object) -> Role:
        """The reverse; :class:`Malformed`."""
        shown = "work" in want_map(value, "role")
        fields = {"work"} if shown else {"resources", "command", "env", "budget"}
        w = want_fields(value, "role", {"name", "members", *fields})
        name = want_role_name(w["name"])
        members = want_int(w["members"], "members", 1, MOST_MEMBERS)
        if not shown:
            return Role.of(name, members, Part.from_wire(w))
        work = want_text(w["work"], "work", 64)
        if not re.fullmatch("[0-9a-f]{64}", work):
            raise Malformed(f"role {name}'s work is no hash")
        return Role(name, members, work)


def want_roles(value: object, members: int) -> tuple[Role, ...]:
    """*value* as the roles of a cluster of so many *members*, all in full or none; Malformed."""
    found = tuple(Role.from_wire(one) for one in want_items(value, "roles", MOST_ROLES))
    if not found:  # two forms of one job would have two hashes
        raise Malformed("no roles: leave `roles` out")
    if len({one.name for one in found}) != len(found):
        raise Malformed("two roles have one name")
    if sum(one.members for one in found) != members:
        raise Malformed(f"the roles' members are not the {members} of the cluster")
    if len({one.part is None for one in found}) != 1:
        raise Malformed("some roles are in full, and some are not")
    return found


def named(roles: Iterable[Role]) -> tuple[Role, ...]:
    """The role of each member, by its number: those of the first role come first."""
    return tuple(one for one in roles for _ in range(one.members))


def own_env(env: Mapping[str, str]) -> dict[str, str]:
    """A member's environment without what it is told."""
    return {name: value for name, value in env.items() if name not in _TOLD}
