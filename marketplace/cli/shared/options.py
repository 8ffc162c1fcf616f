"""Options that several commands share, and the addresses that they say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before spending.")]
Home = Annotated[
    Path,
    typer.Option(
        envvar="TALLY_HOME",
        help="Where keys and state are kept.",
        default_factory=lambda: Path.home() / ".tally",
        show_default="~/.tally",
    ),
]
Market = Annotated[str, typer.Option(envvar="TALLY_MARKET", help="The market's address.")]
Port = Annotated[int, typer.Option(min=0, max=65_535, help="0 takes a free one.")]
ChainUrl = Annotated[
    str, typer.Option(envvar="TALLY_CHAIN_URL", help="A Blockfrost-compatible address.")
]
ProjectId = Annotated[
    str, typer.Option(envvar="TALLY_PROJECT_ID", help="The key that this address asks for.")
]
SubmitUrl = Annotated[
    list[str] | None,
    typer.Option(
        envvar="TALLY_SUBMIT_URLS",
        help="A further door through which transactions are sent, too; may be given again.",
    ),
]

DEFAULT_MARKET: Final = "http://127.0.0.1:8000"


@dataclass(frozen=True)
class Where:
    """The addresses that a command works with; *submit_urls*: further doors for what it sends."""

    market: str
    chain_url: str
    project_id: str
    home: Path
    submit_urls: tuple[str, ...] = ()
