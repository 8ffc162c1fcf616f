"""``tally job forward``: a port of a running job's workload at one of this machine's loopback."""

from __future__ import annotations

import sys
from typing import TypedDict

from marketplace.cli.commands.job_open import chosen
from marketplace.cli.shared.printing import print_json
from marketplace.cli.shared.screen import out
from marketplace.client.net.reading import read
from marketplace.client.sdk.forward import LOOPBACK
from marketplace.client.sdk.read_only import Reader
from marketplace.domain.errors import Malformed, NotFound


class _Member(TypedDict):
    id: str


class _Gang(TypedDict):
    members: list[_Member]


async def member_of(opened: Reader, name: str, member: int | None) -> str:
    """The job that is meant by *name*: itself, or of a gang a *member*, the first one unless said.
    :class:`NotFound`, Malformed.
    """
    if not name.startswith("gang_"):
        if member is not None:
            raise Malformed(f"{name} is a job: --member goes with a gang's id")
        return name
    found = read(_Gang, await opened.http.get(f"/v1/gangs/{name}"), "gang")["members"]
    if (member or 0) >= len(found):
        raise NotFound(f"{name} has {len(found)} members, from 0")
    return found[member or 0]["id"]


async def forward(
    opened: Reader, market: str, name: str, port: int | None, local: int | None, as_json: bool
) -> None:
    """Until the job has ended, or somebody interrupts it."""
    job = opened.job(name)
    one = chosen(market, await job.refresh(), port)
    at = one.port if local is None else local
    async with job.forward(one.port, at, _told) as there:
        if as_json:
            print_json({"job": name, "port": one.port, "local": f"{LOOPBACK}:{there}"})
        else:
            said = f"{LOOPBACK}:{there} is port {one.port} of {name}; Ctrl-C ends it"
            out.print(said, markup=False, soft_wrap=True)
        view = await job.wait()
    if not as_json:
        out.print(f"{name} has ended: {view['reason']}", markup=False)


def _told(why: str) -> None:
    """To whoever looks at the terminal: the local program only sees that it was hung up on."""
    shown = "".join(c if c.isprintable() else " " for c in why)
    sys.stderr.write(f"a connection was closed: {shown}\n")
    sys.stderr.flush()
