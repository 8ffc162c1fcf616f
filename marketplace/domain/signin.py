"""What a wallet signs to sign in: a text that names the market, the account and the moment.

In the manner of EIP-4361 (sign-in with an account's key): host, account, statement, origin,
network, nonce, issued, expires. Whoever is about to sign rebuilds the text from what he knows
himself, the address that he dialled and his own account, and signs nothing else; the market
compares as much with its own addresses. So a challenge of one market that another shows as its own
is worth nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.site import host_of

LONGEST_MS: Final = 3_600_000
"""A challenge that says it lives longer is nobody's that means well."""

_TEXT: Final = """\
{host} wants you to sign in with your Cardano account:
{account}

Sign in to Tally. This costs nothing and moves no money.

URI: {origin}
Version: 1
Network: {magic}
Nonce: {nonce}
Issued At: {issued}
Expiration Time: {expires}"""
_LINES: Final = re.compile(
    r"[^\n]{1,300} wants you to sign in with your Cardano account:\n"
    r"(?P<account>[0-9a-f]{56})\n\n[^\n]{1,100}\n\n"
    r"URI: (?P<origin>[^\s]{1,300})\nVersion: 1\nNetwork: (?P<magic>[0-9]{1,20})\n"
    r"Nonce: (?P<nonce>[0-9a-f]{16,128})\n"
    r"Issued At: (?P<issued>[0-9TZ:-]{20})\nExpiration Time: (?P<expires>[0-9TZ:-]{20})"
)


class OtherMarket(Refusal):
    """A challenge that is not the market's own, or not for this account."""

    code = "SIGN_IN_ELSEWHERE"
    remedy = "sign nothing; use the market's own address, and tell its operator if this was it"


@dataclass(frozen=True)
class SignIn:
    """One challenge. *account*: hex of the payment key hash; times are ms, whole seconds."""

    origin: str
    account: str
    magic: int
    nonce: str
    issued_ms: int
    expires_ms: int

    @property
    def text(self) -> str:
        """What a person reads in the wallet's window, and what is signed."""
        return _TEXT.format(
            host=host_of(self.origin), account=self.account, origin=self.origin, magic=self.magic,
            nonce=self.nonce, issued=_when(self.issued_ms), expires=_when(self.expires_ms),
        )  # fmt: skip

    @staticmethod
    def read(text: str) -> SignIn:
        """The challenge that *text* is, to the letter; Malformed for anything else."""
        found = _LINES.fullmatch(text)
        try:
            if found is None:
                raise ValueError
            read = SignIn(
                found["origin"], found["account"], int(found["magic"]), found["nonce"],
                _ms(found["issued"]), _ms(found["expires"]),
            )  # fmt: skip
        except ValueError:
            raise Malformed("this is not the text of a sign-in") from None
        if read.text != text:
            raise Malformed("this is not the text of a sign-in")
        return read


def expect(message: bytes, origin: str, account: str, magic: int) -> SignIn:
    """*message*, if it signs *account* in at *origin* and does nothing else; :class:`OtherMarket`
    names what differs. For whoever is about to sign it.
    """
    try:
        asked = SignIn.read(message.decode())
    except (Malformed, UnicodeDecodeError):
        raise OtherMarket("what the market asks to be signed is not a sign-in") from None
    rules = (
        (asked.origin == origin, f"the sign-in is for {asked.origin}, not for {origin}"),
        (
            asked.account == account,
            f"the sign-in is for account {asked.account}, not for {account}",
        ),
        (asked.magic == magic, f"the sign-in is for network {asked.magic}, not for {magic}"),
        (0 < asked.expires_ms - asked.issued_ms <= LONGEST_MS, "the sign-in never expires"),
    )
    for holds, why in rules:
        if not holds:
            raise OtherMarket(why)
    return asked


def _when(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _ms(text: str) -> int:
    moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1000
