"""A folder that a cluster's members share and that outlives them, and the market's leave to use its
own. Pure.

Either the market keeps it, for the consumer's account under a *name*, or it is the consumer's own,
at a *url*. A member's host shows it to the workload as :data:`FOLDER`. The market's is reached with
a token of the lease, whose key market and server have between them; whether the lease still lives,
the market tells its server (:mod:`marketplace.cluster_store`). Its owner reaches it as well, with a
token that ends by itself.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from marketplace.domain.canonical import want_fields, want_list, want_text
from marketplace.domain.errors import Malformed
from marketplace.domain.hkdf import hkdf_sha256

FOLDER: Final = "/store"
TOLD_STORE: Final = "TALLY_STORE"
"""Names the folder to a workload: said by its adapter, not by its job."""
KEY: Final = "STORE_KEY"
"""The secret that what the market keeps is encrypted with; its consumer's side makes it."""
USER: Final = "STORE_USER"
PASSWORD: Final = "STORE_PASSWORD"
HEARD_S: Final = 30
"""For so long after the market's last word its server takes leases to live."""
OF_STORE: Final = frozenset({KEY, USER, PASSWORD})
"""Secrets of a member's host, which the workload does not get."""
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PATH: Final = re.compile(r"(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*/?")
_STORE: Final = re.compile(r"[0-9a-f]{32}")
_LEASE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_UNTIL: Final = re.compile(r"[1-9][0-9]{0,11}")
_MOST_URL: Final = 500


@dataclass(frozen=True, slots=True)
class Store:
    """The market's own by *name*, else the consumer's: *url* is ``s3://bucket/prefix`` or
    ``https://host/path`` of a WebDAV server; *endpoint*: of an S3 that is not Amazon's.
    """

    name: str = ""
    url: str = ""
    endpoint: str = ""

    def __post_init__(self) -> None:
        if bool(self.name) is bool(self.url):
            raise Malformed("a store has a name (the market's own) or a url (one of yours)")
        if self.name and not _NAME.fullmatch(self.name):
            raise Malformed(
                "a store's name is 1 to 64 of a-z, 0-9 and -, and neither begins nor ends with -"
            )
        if self.endpoint and not self.is_s3:
            raise Malformed("an endpoint is of an s3:// url alone")
        if self.is_s3:
            self._want_bucket()
        for one in filter(None, ("" if self.is_s3 else self.url, self.endpoint)):
            want_web(one)

    @property
    def is_s3(self) -> bool:
        """Whether it is the consumer's S3."""
        return self.url.startswith("s3://")

    @property
    def at(self) -> tuple[str, str]:
        """Bucket and prefix of an S3."""
        bucket, _, prefix = self.url.removeprefix("s3://").partition("/")
        return bucket, prefix.strip("/")

    @property
    def secrets(self) -> tuple[str, ...]:
        """What its members' hosts have to be sealed."""
        return (KEY,) if self.name else (USER, PASSWORD)

    def _want_bucket(self) -> None:
        bucket, _, prefix = self.url.removeprefix("s3://").partition("/")
        if len(self.url) > _MOST_URL or not _BUCKET.fullmatch(bucket):
            raise Malformed("an S3 is s3://bucket/prefix")
        _want_path("/" + prefix)

    def to_wire(self) -> dict[str, Any]:
        """What is said of it."""
        said = {"name": self.name, "url": self.url, "endpoint": self.endpoint}
        return {key: value for key, value in said.items() if value}

    @staticmethod
    def from_wire(value: object) -> Store:
        """The reverse; :class:`Malformed`, for an empty word too: one store has one form."""
        w = want_fields(value, "store", set(), {"name", "url", "endpoint"})
        for key, said in w.items():
            if not want_text(said, key, _MOST_URL):
                raise Malformed(f"store: leave {key} out")
        return Store(**w)


def want_web(url: str) -> tuple[str, int]:
    """Host and port of an address of the web, that names no user and asks nothing;
    :class:`Malformed`. What is not encrypted goes to a private network alone.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise Malformed(f"{url[:80]!r} is no address of the web") from None
    rest = (parts.query, parts.fragment, parts.username, parts.password)
    if parts.scheme not in ("http", "https") or not host or any(rest) or len(url) > _MOST_URL:
        raise Malformed(f"{url[:80]!r} is no https://host/path without user, ? and #")
    if not re.fullmatch(r"[a-z0-9.-]+|[0-9a-f:]+", host):
        raise Malformed(f"{host[:80]!r} is no host")
    _want_path(parts.path)
    if parts.scheme == "http" and not _private(host):
        raise Malformed("http:// is read by whoever is on the way: say https://")
    return host, port or (443 if parts.scheme == "https" else 80)


def _want_path(path: str) -> None:
    if not _PATH.fullmatch(path):
        raise Malformed(f"{path[:80]!r}: a path has letters, digits, - _ ~ and dots within names")


def _private(host: str) -> bool:
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return host == "localhost"


def id_of(account: str, name: str) -> str:
    """What the market's store of an *account* is called at its server: 32 hex digits, by which
    nobody's name meets another's, and no name leads elsewhere.
    """
    whose = f"{len(account)}:{account}/{name}"
    return hashlib.sha256(b"tally/cluster-store/v1" + whose.encode()).hexdigest()[:32]


def key_of(seed: bytes, name: str) -> str:
    """The secret :data:`KEY` of the store *name*: from the purse's key alone, so that a later
    cluster of the same purse reads what an earlier one wrote. 64 hex digits.
    """
    return hkdf_sha256(seed, b"tally/cluster-store/v1/" + name.encode()).hex()


@dataclass(frozen=True, slots=True)
class Leave:
    """Whom a token of *store* lets in: a member's host while *lease* lives (``member``), or until
    *until_s* (since 1970) the store's ``owner``, or the ``market`` itself.
    """

    kind: Literal["member", "owner", "market"]
    store: str
    lease: str = ""
    until_s: int = 0

    def token(self, secret: bytes) -> str:
        """What whoever knows *secret* takes for it."""
        return f"{self._said}.{hmac.digest(secret, self._meant, 'sha256').hex()}"

    @property
    def _said(self) -> str:
        if self.kind == "member":
            return f"{self.store}.{self.lease}"
        return f"{self.kind}.{self.store}.{self.until_s}"

    @property
    def _meant(self) -> bytes:
        if self.kind == "member":
            return f"tally/cluster-store/v1 {self.store} {self.lease}".encode()
        return f"tally/cluster-store/v1/{self.kind} {self.store} {self.until_s}".encode()

    @staticmethod
    def opened(secret: bytes, said: str) -> Leave | None:
        """What the token *said* allows, if who has *secret* made it; None for any other. Whether
        its time is over is not looked at.
        """
        leave = _read(said.split("."))
        if leave is None or not hmac.compare_digest(said.encode(), leave.token(secret).encode()):
            return None
        return leave


def _read(words: list[str]) -> Leave | None:
    match words:
        case [("owner" | "market") as kind, store, until, _] if _UNTIL.fullmatch(until):
            leave = Leave(kind, store, until_s=int(until))
        case [store, lease, _] if _LEASE.fullmatch(lease):
            leave = Leave("member", store, lease)
        case _:
            return None
    return leave if _STORE.fullmatch(leave.store) else None


@dataclass(frozen=True, slots=True)
class StorePlace:
    """A market's own stores: their server is at *url*; *secret*: its and the market's."""

    url: str
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        want_web(self.url)

    def give(self, account: str, name: str, lease: str) -> StorePass:
        """Leave for that lease."""
        return self.let(Leave("member", id_of(account, name), lease))

    def lend(self, account: str, name: str, until_s: int) -> StorePass:
        """Leave for its owner, until then (seconds since 1970)."""
        return self.let(Leave("owner", id_of(account, name), until_s=until_s))

    def let(self, leave: Leave) -> StorePass:
        """Where that store is, and what lets in there."""
        return StorePass(f"{self.url.rstrip('/')}/{leave.store}/", leave.token(self.secret))


@dataclass(frozen=True, slots=True)
class StorePass:
    """What a market gives: a store of its own is at *url*, for who has the *token*."""

    url: str
    token: str = field(repr=False)

    def to_wire(self) -> list[object]:
        """Every field, by place."""
        return [self.url, self.token]

    @staticmethod
    def from_wire(value: object) -> StorePass:
        """The reverse; :class:`Malformed`."""
        url, said = want_list(value, 2, "store's pass")
        at = want_text(url, "url", _MOST_URL)
        want_web(at)
        word = want_text(said, "token", 200)
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,200}", word):
            raise Malformed("a store's token is one word")
        return StorePass(at, word)
