"""``tally``: a table of commands, each loaded when it is called.

A provider's install has no FastAPI and a consumer's no NVML: a command whose extra is missing
answers with the pip line that brings it.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from marketplace.cli.shared.refusals import DONE, Declined, UsageError, guarded, wants_json

if TYPE_CHECKING:
    import typer


class Entry(NamedTuple):
    """Where a command lives, what it is for, and which extra it needs."""

    module: str
    help: str
    extra: str


COMMANDS: Final[dict[str, Entry]] = {
    "up": Entry("embedded.up", "Run devnet, market, adapter and console on this machine.", "all"),
    "demo": Entry(
        "embedded.demo", "Tell the whole story once, on throw-away state, and prove it.", "all"
    ),
    "offers": Entry("commands.offers", "Search what providers offer.", "client"),
    "init": Entry("commands.init", "Write a first job file, or the examples.", "client"),
    "job": Entry("commands.job", "Quote, run, watch and stop jobs.", "client"),
    "app": Entry("commands.app", "A Python app with a page, on a rented device.", "client"),
    "model": Entry("commands.model", "A model as an image, and as a service.", "client"),
    "node": Entry("commands.node", "What a Cardano relay says of itself.", "chain"),
    "notebook": Entry("commands.notebook", "JupyterLab on a rented device.", "client"),
    "service": Entry(
        "commands.service", "Replicas of a job behind one address, kept running.", "client"
    ),
    "shell": Entry("commands.shell", "A terminal on a rented device.", "client"),
    "store": Entry("commands.store", "What clusters left in the market's stores.", "client"),
    "volume": Entry("commands.volume", "What lies on a volume: out of it, into it.", "client"),
    "image": Entry("commands.image", "Your images in the market's registry.", "client"),
    "invoice": Entry("commands.invoice", "Recompute a job's bill from its receipts.", "client"),
    "spend": Entry("commands.spend", "What was spent, by day, job or API key.", "client"),
    "key": Entry("commands.key", "API keys for programs: make, list, revoke.", "client"),
    "webhook": Entry("commands.webhook", "Hear what happens to your jobs.", "client"),
    "wallet": Entry("commands.money.wallet", "Make and show a wallet.", "client"),
    "purse": Entry("commands.money.purse", "Fund, show and sweep the hot purse.", "client"),
    "payer": Entry("commands.money.payer", "Pay for jobs that outlive their client.", "client"),
    "channel": Entry(
        "commands.money.channel", "Get one's own money out with a chain address alone.", "client"
    ),
    "watch": Entry(
        "commands.money.watch", "Rescue sleeping providers: a keyless watchtower.", "client"
    ),
    "adapter": Entry(
        "commands.adapter", "The provider's side: doctor, run, status, drain.", "adapter"
    ),
    "market": Entry(
        "commands.market.serve", "Serve, migrate, settle and operate a market.", "market"
    ),
    "devnet": Entry("commands.devnet", "A Cardano ledger on this machine.", "devnet"),
    "faucet": Entry("commands.money.faucet", "Devnet money for an address.", "devnet"),
    "bench": Entry("commands.bench", "Measure; print figures.", "dev"),
    "completion": Entry(
        "commands.completion", "Complete command lines in bash, zsh or fish.", "client"
    ),
}


class ExtraMissing(UsageError):
    """A command's libraries are not installed."""

    code = "EXTRA_MISSING"
    remedy = ""


class NoCommand(UsageError):
    """The first word is no command."""

    remedy = "`tally --help` lists them"


def load(name: str) -> typer.Typer:
    """The command group *name*; :class:`ExtraMissing` with the pip line that brings its
    libraries.
    """
    entry = COMMANDS[name]
    # httpx imports its own command line wherever click is installed: with click, pygments and
    # rich's bars that costs more than the rest of httpx, and no command here uses it. A module
    # that is None counts as not installed, and httpx does without.
    sys.modules.setdefault("httpx._main", cast(ModuleType, None))
    # pycardano has typeguard rewrite its classes as they are imported, a third of what that costs;
    # what we call of it is checked before it runs, by pyright, and in our tests by typeguard too.
    os.environ.setdefault("PYCARDANO_NO_TYPE_CHECK", "true")
    # pycardano imports every way to a chain that it knows; ours is its own (blockfrost-python). The
    # others, and the libraries that they bring, are two fifths of what importing it costs.
    for door in ("ogmios_v5", "ogmios_v6", "kupo"):
        unused = f"pycardano.backend.{door}"
        sys.modules.setdefault(unused, ModuleType(unused))
    # Next to nothing of what is imported is ever garbage: to look for it takes a sixth of the time.
    gc.disable()
    try:
        module = importlib.import_module(f"marketplace.cli.{entry.module}")
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing in ("marketplace", "adapter", "contracts"):
            raise
        raise ExtraMissing(
            f"`tally {name}` needs {missing} — pip install 'tally-compute[{entry.extra}]'"
        ) from error
    finally:
        gc.enable()
    if "structlog" in sys.modules:
        from marketplace.cli.shared.logs import configure_logs

        configure_logs()
    # `tally completion` completes the whole line; typer's own would install one for "tally job".
    module.app._add_completion = False
    module.app.pretty_exceptions_enable = False  # a defect's traceback as Python prints it
    return module.app


def call(app: typer.Typer, arguments: list[str], name: str) -> None:
    """The command; a wrong option is told as every refusal is where JSON is asked for, else as
    typer tells it, with the usage.
    """
    if not wants_json(arguments):
        app(args=arguments, prog_name=name)
        return
    import typer

    try:
        code = app(args=arguments, prog_name=name, standalone_mode=False)
    except typer.TyperException as wrong:  # what it says of a parameter is a method of some only
        raise UsageError(getattr(wrong, "format_message", wrong.__str__)()) from None
    except typer.Abort:
        raise Declined("not confirmed") from None
    sys.exit(code if isinstance(code, int) else DONE)


def show_help() -> None:
    """What there is; nothing is imported for it."""
    from marketplace.cli.shared.screen import out

    out.print("Tally: decentralised compute on Cardano, paid by the metered second.\n")
    out.print("Usage: tally COMMAND [OPTIONS]      tally COMMAND --help says more\n", markup=False)
    for name, entry in COMMANDS.items():
        out.print(f"  [bold]{name:<12}[/]{entry.help}")


def run(arguments: list[str]) -> None:
    """One command line, without the program's name."""
    name = arguments[0] if arguments else "--help"
    if name in ("--help", "-h", "help"):
        show_help()
    elif name == "--version":
        from marketplace.version import release

        print(f"tally {release()}")
    elif name in COMMANDS:
        call(load(name), arguments[1:], f"tally {name}")
    else:
        import difflib

        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"; did you mean `tally {near[0]}`?" if near else ""
        raise NoCommand(f"there is no command {name!r}{hint}")


def main() -> None:
    """The process's entry."""
    guarded(lambda: run(sys.argv[1:]))


if __name__ == "__main__":
    main()
