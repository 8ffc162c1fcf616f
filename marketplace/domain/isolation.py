"""How strongly a workload is held apart from its host: one ordered word for jobs, offers and
runtimes.

It decides the runtime: a plain process runs the host's own programs and has no image; everything
stronger runs an image.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from marketplace.domain.errors import Malformed


class IsolationRefused(Malformed):
    """An isolation that does not exist, or one that cannot run what the job says."""

    code = "ISOLATION"
    remedy = "with an image leave isolation out; without one write isolation: process and a command"


class Isolation(StrEnum):
    """From the weakest to the strongest."""

    PROCESS = "process"  # the host's own programs under an own user; kernel and /usr are the host's
    CONTAINER = "container"  # an image with a file system of its own; the kernel is the host's
    SANDBOX = "sandbox"  # an image on a kernel of its own in user space (gVisor)
    VM = "vm"  # an image on a machine of its own

    @property
    def takes_image(self) -> bool:
        """Whether an image runs, or the host's own programs."""
        return self is not Isolation.PROCESS

    @property
    def accepted(self) -> tuple[Isolation, ...]:
        """What a job that asks for this runs under, weakest first: this or stronger; but a process,
        which has no image, runs as a process only."""
        if not self.takes_image:
            return (self,)
        return tuple(one for one in Isolation if one.rank >= self.rank)

    @property
    def rank(self) -> int:
        """0 for the weakest."""
        return list(Isolation).index(self)

    def among(self, offered: Collection[str]) -> Isolation | None:
        """The weakest of *offered* that a job which asks for this accepts; None if there is
        none.
        """
        return next((one for one in self.accepted if one in offered), None)

    def check(self, image: str, command: Collection[str]) -> None:
        """:class:`IsolationRefused` unless a job with *image* ("" = none) and *command* can run
        so.
        """
        if self.takes_image and not image:
            raise IsolationRefused(f"isolation {self} runs an image, and the job names none")
        if not self.takes_image and image:
            raise IsolationRefused("isolation process runs the host's programs, and no image")
        if not self.takes_image and not command:
            raise IsolationRefused("isolation process has no image whose command would run")


def want_isolation(value: object) -> Isolation:
    """*value* if it is one of the words; :class:`IsolationRefused`."""
    try:
        return Isolation(value)  # pyright: ignore[reportArgumentType]  anything else is refused
    except ValueError:
        known = ", ".join(Isolation)
        raise IsolationRefused(f"isolation {str(value)[:40]!r} is not one of {known}") from None
