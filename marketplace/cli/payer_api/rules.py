"""Who comes in at the payer's API, and what it passes on to the market.

Whoever has the token spends the purse, up to a day's cap: so it listens on loopback alone, and
takes no request that a browser page could have sent: a page names its origin, or another host by
which it was led here.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from marketplace import disk
from marketplace.domain.errors import Forbidden, Unauthenticated
from marketplace.keystore import DRAWN

TOKEN: Final = "payer-api.token"
"""Its file in the home, of mode 0600."""
_ID: Final = "[A-Za-z0-9_-]{1,100}"
_OF_A_JOB: Final = "logs|events|telemetry|history|receipts|invoice|outputs"
_PASSED: Final[Mapping[str, re.Pattern[str]]] = {
    method: re.compile("|".join(paths))
    for method, paths in {
        "GET": (
            r"/v1/(network|offers|providers|prices|stats|utilisation|jobs|blobs|spend|spend\.csv)",
            rf"/v1/(offers|providers|jobs|blobs)/{_ID}",
            rf"/v1/jobs/{_ID}/({_OF_A_JOB})",
            rf"/v1/jobs/{_ID}/outputs/[0-9a-f]{{64}}",
        ),
        "POST": (r"/v1/(quotes|explain)", rf"/v1/jobs/{_ID}/stop"),
        "PUT": (r"/v1/blobs/[0-9a-f]{64}",),
    }.items()
}


class NotPassedOn(Forbidden):
    """The market has it, and the payer's API does not pass it on."""

    code = "NOT_PASSED_ON"
    remedy = "ask the market itself, with an API key of its own: `tally key create`"


class FromAPage(Forbidden):
    """A browser sent it, or it was led here under another name."""

    code = "FROM_A_PAGE"
    remedy = "call http://127.0.0.1 or http://localhost from a program, without an Origin"


class TokenWrong(Unauthenticated):
    """No token of this API, or another one."""

    remedy = f"send the content of {TOKEN} in the payer's --home as a bearer token"


def token_of(home: Path) -> str:
    """The API's secret, made at first use; who takes its file away, changes it."""
    path = home / TOKEN
    try:
        token = path.read_text().strip() if path.exists() else ""
    except OSError as error:
        raise disk.fault(error, "the API's token cannot be read", path) from error
    if len(token) < DRAWN:  # an emptied file would let everybody in
        token = secrets.token_urlsafe(32)
        disk.write_whole(path, token.encode() + b"\n")
    return token


def let_in(headers: Mapping[str, str], token: str, port: int) -> None:
    """:class:`FromAPage` or :class:`TokenWrong`, for whoever is not to come in. *headers* by their
    names in lower case.
    """
    if "origin" in headers or headers.get("host") not in _hosts(port):
        raise FromAPage("this API is for programs of this machine")
    kind, _, given = headers.get("authorization", "").partition(" ")
    right = secrets.compare_digest(given.strip().encode(), token.encode())
    if kind.lower() != "bearer" or not right:
        raise TokenWrong("no bearer token of this API")


def check_passed(method: str, path: str) -> None:
    """:class:`NotPassedOn` unless the market hears of it. *path* is decoded."""
    allowed = _PASSED.get(method)
    if allowed is None or allowed.fullmatch(path) is None:
        raise NotPassedOn(f"{method} {path[:200]} is not passed on")


def _hosts(port: int) -> frozenset[str]:
    return frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost"))
