"""A transition table, and nothing else.

For lifecycles whose states carry no data of their own.  Where each state holds different data
(a channel, say) there is a union of frozen dataclasses and ``match`` instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from marketplace.domain.errors import IllegalTransition

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


@dataclass(frozen=True)
class Machine(Generic[S, E]):
    """A finite state machine: its name, its initial state and its arrows."""

    name: str
    initial: S
    arrows: Mapping[tuple[S, E], S]

    def step(self, state: S, event: E) -> S:
        """The state after *event*, or :class:`IllegalTransition`."""
        try:
            return self.arrows[state, event]
        except KeyError:
            raise IllegalTransition(self.name, state.name, event.name) from None

    def accepts(self, state: S, event: E) -> bool:
        """True when *state* has an answer for *event*."""
        return (state, event) in self.arrows

    def is_terminal(self, state: S) -> bool:
        """True when no arrow leaves *state*."""
        return all(source is not state for source, _ in self.arrows)

    def mermaid(self) -> str:
        """The diagram in ``docs/machines.md``, drawn from the table so the two cannot differ."""
        lines = [f"    {a.name} --> {b.name}: {e.name}" for (a, e), b in self.arrows.items()]
        return "\n".join(["stateDiagram-v2", f"    [*] --> {self.initial.name}", *lines])
