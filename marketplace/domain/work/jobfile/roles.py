"""``roles`` of a cluster: what its members need and run where they differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from marketplace.domain.work.jobfile import needs, values
from marketplace.domain.work.jobfile.nodes import BadValue, Node, Notes, Table
from marketplace.domain.work.jobfile.values import Section, guarded, join, whole
from marketplace.domain.work.parts import MOST_MEMBERS, Resources
from marketplace.domain.work.roles import MOST_ROLES, Part, Role, want_role_name

_KEYS: Final = ("members", "resources", "any_of", "command", "env", "budget")


@dataclass(frozen=True, slots=True)
class AskedRole:
    """A role as its file says it at *node*; None for what it leaves to the job. *budget*: of all
    its members together, lovelace.
    """

    name: str
    members: int
    node: Node
    path: str
    resources: tuple[Resources, ...] | None
    command: tuple[str, ...] | None
    env: Mapping[str, str]
    budget: int | None


@dataclass(frozen=True, slots=True)
class JobSays:
    """What the job says of all its members; *budget*: of all together, lovelace."""

    resources: tuple[Resources, ...]
    command: tuple[str, ...]
    env: Mapping[str, str]
    budget: int


def roles_asked(notes: Notes, node: Node, path: str) -> tuple[AskedRole, ...]:
    """``{head: {members: 1, resources: {cpu: 4}}, worker: {members: 3, …}}``, in their order."""
    known = [key.text for key, _ in node.entries] if isinstance(node, Table) else ["worker"]
    s = Section.read(notes, node, path, known)
    if s.table is None:
        return ()
    if not 1 <= len(s.entries) <= MOST_ROLES:
        notes.add(BadValue, node, path, f"1 to {MOST_ROLES} roles are expected")
        return ()
    for key, _ in s.table.entries:
        guarded(notes, key, join(path, key.text[:60]), lambda key=key: want_role_name(key.text))
    return tuple(_role(notes, one, join(path, name), name) for name, one in s.entries.items())


def _role(notes: Notes, node: Node, path: str, name: str) -> AskedRole:
    s = Section.read(notes, node, path, _KEYS)
    says = s.get("resources") is not None or s.get("any_of") is not None
    return AskedRole(
        name=name,
        members=s.take("members", whole(1, MOST_MEMBERS), 1),
        node=node,
        path=path,
        resources=needs.blocks(s) if says else None,
        command=s.take("command", needs.command, ()) if s.get("command") is not None else None,
        env=needs.env_of(s),
        budget=s.take("budget", values.money, 1) if s.get("budget") is not None else None,
    )


def resolved(
    notes: Notes,
    asked: Sequence[AskedRole],
    job: JobSays,
    launch: Callable[[tuple[str, ...]], tuple[str, ...]],
) -> tuple[Role, ...]:
    """Each role in full: what it does not say is the *job*'s, and *launch* makes of a command what
    a member runs.

    A role's own budget is divided equally among its members, and what the others leave of the
    job's among all members of roles without one.
    """
    own = sum(one.budget for one in asked if one.budget is not None)
    others = sum(one.members for one in asked if one.budget is None)
    left = job.budget - own
    made: list[Role] = []
    for one in asked:
        each = left // others if one.budget is None else one.budget // one.members
        if left < 0:
            why = "the roles' budgets are more than the job's: raise price.budget, or lower them"
            notes.add(BadValue, one.node, join(one.path, "budget"), why)
            break
        if each < 1:
            why = "nothing of the budget is left for it: raise price.budget, or lower the others'"
            notes.add(BadValue, one.node, join(one.path, "budget"), why)
            continue
        part = guarded(
            notes, one.node, join(one.path, "env"),
            lambda one=one, each=each: Part(
                resources=job.resources if one.resources is None else one.resources,
                command=launch(job.command if one.command is None else one.command),
                env={**job.env, **one.env},
                budget=each,
            ),
        )  # fmt: skip
        if part is not None:
            made.append(Role.of(one.name, one.members, part))
    return tuple(made)
