"""``tally completion``: a script for bash, zsh or fish, made from the table of commands.

Everything is written into the script, so that completing starts no Python; make it anew after an
update. Commands whose extra is not installed are completed by their name only.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, cast

import typer

from marketplace.cli.main import COMMANDS, ExtraMissing, load
from marketplace.cli.shared.refusals import UsageError

app = typer.Typer(help="Print a completion script for a shell.", rich_markup_mode=None)
SHELLS: Final = ("bash", "zsh", "fish")


@dataclass(frozen=True)
class Known:
    """A command's long options and, if it is a group, its own commands with theirs."""

    options: tuple[str, ...] = ()
    below: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


@app.command()
def completion(
    shell: Annotated[str, typer.Argument(help="bash, zsh or fish.", metavar="SHELL")],
) -> None:
    """Print the script; `source <(tally completion bash)` in ~/.bashrc uses it."""
    if shell not in SHELLS:
        raise UsageError(f"{shell!r} is not one of {', '.join(SHELLS)}")
    sys.stdout.write(script(shell, {name: known(name) for name in COMMANDS}))


def known(name: str) -> Known:
    """What the command *name* takes."""
    try:
        command = typer.main.get_command(load(name))
    except ExtraMissing:
        return Known()
    below = cast("dict[str, Any]", getattr(command, "commands", {}))
    return Known(_options(command), {sub: _options(below[sub]) for sub in sorted(below)})


def _options(command: Any) -> tuple[str, ...]:
    found = {
        option
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option.startswith("--")
    }
    return tuple(sorted(found | {"--help"}))


def script(shell: str, table: dict[str, Known]) -> str:
    """The script's text; file names are completed wherever no command or option is."""
    if shell == "fish":
        return _fish(table)
    zsh = "autoload -Uz compinit bashcompinit && compinit && bashcompinit\n"
    return (zsh if shell == "zsh" else "") + _bash(table)


def _bash(table: dict[str, Known]) -> str:
    lines = [
        "_tally() {",
        '    local cur="${COMP_WORDS[COMP_CWORD]}" words="" options=""',
        '    case "$COMP_CWORD:${COMP_WORDS[1]}:${COMP_WORDS[2]}" in',
        f'        1:*) words="{" ".join(table)}" ;;',
    ]
    for name, has in table.items():
        if has.below:
            lines.append(f'        2:{name}:*) words="{" ".join(has.below)}" options="--help" ;;')
            lines += [
                f'        *:{name}:{sub}) options="{" ".join(options)}" ;;'
                for sub, options in has.below.items()
            ]
        else:
            lines.append(f'        *:{name}:*) options="{" ".join(has.options)}" ;;')
    lines += [
        "    esac",
        '    case "$cur" in -*) words="$options" ;; esac',
        '    COMPREPLY=( $(compgen -W "$words" -- "$cur") )',
        "}",
        "complete -o bashdefault -o default -F _tally tally",
    ]
    return "\n".join(lines) + "\n"


def _fish(table: dict[str, Known]) -> str:
    lines = ["complete -c tally -e"]
    for name, has in table.items():
        told = COMMANDS[name].help.replace("'", "\\'") if name in COMMANDS else ""
        lines.append(f"complete -c tally -f -n __fish_use_subcommand -a {name} -d '{told}'")
        inside = f"__fish_seen_subcommand_from {name}"
        if has.below:
            subs = " ".join(has.below)
            fresh = f"{inside}; and not __fish_seen_subcommand_from {subs}"
            lines.append(f"complete -c tally -f -n '{fresh}' -a '{subs}'")
        for sub, options in has.below.items():
            where = f"{inside}; and __fish_seen_subcommand_from {sub}"
            lines += [f"complete -c tally -n '{where}' -l {o[2:]}" for o in options]
        lines += [
            f"complete -c tally -n '{inside}' -l {o[2:]}" for o in has.options if not has.below
        ]
    return "\n".join(lines) + "\n"
