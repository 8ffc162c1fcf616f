"""``tally watch``: a watchtower without anybody's key."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import anyio
import typer

from marketplace.chain.encoding import address as addresses
from marketplace.chain.settlement.wanted import Round
from marketplace.chain.settlement.watchtower import EVERY_S, Alarm, watch
from marketplace.cli.shared.options import ChainUrl, Home, ProjectId, SubmitUrl
from marketplace.cli.shared.screen import err, out
from marketplace.cli.shared.session import desk
from marketplace.client.wallet.purse import Purse
from marketplace.disk import private_folder

app = typer.Typer(help="Rescue sleeping providers: a keyless watchtower.", rich_markup_mode=None)


@app.command()
def tower(
    book: Annotated[Path, typer.Argument(help="Vouchers to watch, JSON lines (docs/operator.md).")],
    home: Home,
    key: Annotated[str, typer.Option(help="Whose wallet pays the fees.")] = "tower",
    every_s: Annotated[float, typer.Option(help="Seconds between two looks.")] = EVERY_S,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    submit_url: SubmitUrl = None,
) -> None:
    """Watch the channels of BOOK until Ctrl-C; when one closes, claim what its provider is owed."""

    async def seen(rounds: Sequence[Round], alarms: Sequence[Alarm]) -> None:
        for done in rounds:
            for settled in done.sent:
                out.print(
                    f"claimed {settled.claimed} in {settled.sent.tx_id.hex()}, "
                    f"fee {settled.sent.fee}",
                    markup=False,
                )
        for alarm in alarms:
            out.print(
                f"ALARM {alarm.session_vk.hex()}: {alarm.unclaimed} unclaimed after "
                f"{alarm.passed_bps // 100} % of the close period",
                markup=False,
            )

    async def run() -> None:
        Purse.create(private_folder(home), name=key)  # a tower needs no key but its own, for fees
        mine = await desk(home, key, chain_url, project_id, submit_urls=submit_url or ())
        err.print(f"fees are paid from {addresses.to_text(mine.wallet.address)}", markup=False)
        if not await anyio.Path(book).exists():
            err.print(f"{book} is not there yet: nothing to watch until it is", markup=False)
        await watch(mine, book, every_s=every_s, seen=seen)

    anyio.run(run)
