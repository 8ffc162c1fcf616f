"""The door of every command: whatever goes wrong becomes one line and an exit code.

Exit codes: 0 done, 1 the job failed, 2 usage, 3 refused (no match, budget, channel), 4 the world
failed (unreachable, chain). Nothing here is imported but what every command needs: ``tally
--version`` starts with it.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, cast

from marketplace.disk import DiskFull
from marketplace.domain.errors import Fault, Malformed, Refusal, TallyError

DONE: Final = 0
JOB_FAILED: Final = 1
USAGE: Final = 2
REFUSED: Final = 3
WORLD_FAILED: Final = 4
INTERRUPTED: Final = 130  # as shells say of SIGINT


class UsageError(Malformed):
    """The command line does not say what is needed."""

    code = "USAGE"
    remedy = "see `tally COMMAND --help`"


class PortTaken(Refusal):
    """Another program listens where a part should."""

    code = "PORT_TAKEN"
    remedy = "stop what listens there, or choose another port (--port; --api of `payer run`)"


class MachineRefused(Fault):
    """This machine does not let a command read, write or listen."""

    code = "MACHINE_REFUSED"
    remedy = "make the path readable and writable for this user, or name another"


class NotInTime(Fault):
    """What a command waited for did not come in time."""

    code = "NOT_IN_TIME"
    remedy = "try again; where it comes again, a log of the parts says who stands still"


class Declined(Refusal):
    """The person said no."""

    code = "NOT_CONFIRMED"
    remedy = "nothing was spent; add --yes to skip the question"


def exit_code(error: TallyError) -> int:
    """Which exit code *error* ends with."""
    if isinstance(error, UsageError) or type(error) is Malformed:  # an argument that does not parse
        return USAGE
    return WORLD_FAILED if isinstance(error, Fault) else REFUSED


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether a command line asks for JSON; what stands behind ``--`` is the job's own."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in own


def fail(error: TallyError) -> NoReturn:
    """One line with code, cause and remedy on stderr; then the exit code of its kind. Where several
    things are wrong with a file, the others follow, a line each. With ``--json`` the line is an
    object: ``code``, ``message``, ``remedy``, ``fields``.
    """
    remedy = UsageError.remedy if type(error) is Malformed else error.remedy
    if wants_json(sys.argv[1:]):
        told = {"code": error.code, "message": error.message, "remedy": remedy}
        line = json.dumps({**told, "fields": error.fields}, default=str, ensure_ascii=False)
        sys.stderr.write(line + "\n")
        sys.exit(exit_code(error))
    from marketplace.cli.shared.screen import err

    err.print(f"[bold red]{error.code}[/]: ", end="")
    err.print(error.message, markup=False, end="\n" if not remedy else " ")
    if remedy:
        err.print(f"— {remedy}", markup=False, style="dim")
    for other in further(error):
        err.print(f"  {other}", markup=False, highlight=False)
    sys.exit(exit_code(error))


def further(error: TallyError) -> list[str]:
    """The problems of a job file beside the one that the message says."""
    problems = error.fields.get("problems")
    return (
        [str(one) for one in cast("list[object]", problems)[1:]]
        if isinstance(problems, list)
        else []
    )


def guarded(command: Callable[[], Any]) -> Any:
    """Run *command*; any :class:`TallyError`, also inside a group of them, ends as one line."""
    try:
        return command()
    except TallyError as error:
        fail(error)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # whoever read has had enough
        sys.exit(DONE)
    except OSError as error:
        fail(of_machine(error))
    except BaseExceptionGroup as group:
        first = first_tally_error(group)
        if first is not None:
            fail(first)
        if group.split(KeyboardInterrupt)[1] is None:
            sys.exit(INTERRUPTED)
        raise


def of_machine(error: OSError) -> TallyError:
    """What this machine refused, or did not do in time, in words."""
    if isinstance(error, TimeoutError):
        return NotInTime(error.strerror or str(error) or "what was waited for did not come in time")
    where = f"{error.filename}: " if error.filename else ""
    text = f"{where}{error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(text)
    return PortTaken(text) if error.errno == errno.EADDRINUSE else MachineRefused(text)


def first_tally_error(group: BaseExceptionGroup[BaseException]) -> TallyError | None:
    """The first of ours in a task group's error, or None."""
    for error in group.exceptions:
        if isinstance(error, TallyError):
            return error
        if isinstance(error, OSError):
            return of_machine(error)
        if isinstance(error, BaseExceptionGroup):
            found = first_tally_error(error)  # pyright: ignore[reportUnknownArgumentType]
            if found is not None:
                return found
    return None
