"""What ``tally job run`` and ``quote`` are asked for: a job file, options in its place or over it,
and a command after ``--``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer
from typer.core import TyperCommand

from marketplace.cli.shared.refusals import UsageError

if TYPE_CHECKING:
    from marketplace.client.jobs.jobfiles import LoadedJob
    from marketplace.domain.work.jobfile.settings import Setting

_COMMAND: Final = "marketplace.command"
ANY_GPU: Final = "any"

File = Annotated[
    Path | None,
    typer.Argument(help="A job file (YAML or JSON); see docs/jobs.md.", metavar="[FILE]"),
]
Image = Annotated[
    str | None, typer.Option(metavar="IMAGE", help="Container image; needs no FILE then.")
]
Gpu = Annotated[
    str | None, typer.Option(metavar="MODEL", help="A GPU of this model, or `any`, or a count.")
]
Cores = Annotated[str | None, typer.Option(metavar="N", help="CPU cores, e.g. 2 or 0.5.")]
Memory = Annotated[str | None, typer.Option(metavar="SIZE", help="Memory, e.g. 4GB.")]
Longest = Annotated[
    str | None, typer.Option("--for", metavar="DURATION", help="Longest run, e.g. 15m.")
]
Change = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A key of the job file, dotted, e.g. price.budget='5 ADA'; may be given again.",
    ),
]


class WithCommand(TyperCommand):
    """A command that keeps apart what stands after ``--``: the job's own command line.

    Typer carries a click of its own and exports neither its context nor its formatter.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the words after the first ``--`` aside; the rest as ever."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        """As ever, and what may stand behind."""
        pieces = [*self.collect_usage_pieces(ctx), "[-- COMMAND...]"]
        formatter.write_usage(ctx.command_path, " ".join(pieces))


def command_of(ctx: typer.Context) -> tuple[str, ...]:
    """What stood after ``--``."""
    return cast("tuple[str, ...]", ctx.meta.get(_COMMAND, ()))


@dataclass(frozen=True)
class Wanted:
    """A job as the command line says it: *file*, and what is said over it or in its place."""

    file: Path | None
    image: str | None
    gpu: str | None
    cores: str | None
    memory: str | None
    longest: str | None
    change: list[str] | None
    command: tuple[str, ...]

    def load(self) -> LoadedJob:
        """The job; a Refusal as for a file that says the same."""
        from marketplace.client.jobs import jobfiles

        changes = self.settings()
        if self.file is not None:
            return jobfiles.load(self.file, changes)
        if not changes:
            raise UsageError("name a job file, or give --image IMAGE and a command after --")
        return jobfiles.without_file(changes)

    def settings(self) -> list[Setting]:
        """The options as keys of the job file, `--set` last."""
        from marketplace.client.jobs import jobfiles
        from marketplace.domain.work.jobfile.settings import Setting, word, words

        gpu = "1" if self.gpu == ANY_GPU else self.gpu
        said = (
            (("resources", "gpu"), gpu),
            (("resources", "cpu"), self.cores),
            (("resources", "memory"), self.memory),
            (("policy", "max_duration"), self.longest),
        )
        found = [
            Setting(path, jobfiles.value(text, path[-1])) for path, text in said if text is not None
        ]
        if self.image is not None:
            found.append(Setting(("image",), word(self.image)))
        if self.command:
            found.append(Setting(("command",), words(self.command)))
        return [*found, *map(jobfiles.setting, self.change or ())]
