"""How rclone is told which store to mount: by its environment alone, so that no credential is on a
command line, in a file or in a log. https://rclone.org/docs/#config-file
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from marketplace.domain.errors import Refusal
from marketplace.domain.work.cluster_store import (
    KEY,
    PASSWORD,
    USER,
    Store,
    StorePass,
    want_web,
)

PROGRAM: Final = "rclone"
REMOTE: Final = "store:"
"""What rclone calls it."""
_SHELF: Final = "tally_shelf"
"""And that of the market behind it, which is encrypted: a name that nobody has given already."""
_AMAZON: Final = "https://s3.amazonaws.com"


class StoreRefused(Refusal):
    """A store that this host does not mount, or whose server does not let it in."""

    code = "STORE_REFUSED"
    remedy = "check the store's address, and the secrets that open it"


@dataclass(frozen=True, slots=True)
class Source:
    """*environment*: of an rclone that finds the store as *remote*; *at*: host and port of its
    server.
    """

    remote: str
    at: tuple[str, int]
    environment: Mapping[str, str] = field(repr=False)
    own: bool = False  # the consumer's, who answers for it


def of_market(given: StorePass, secrets: Mapping[str, str]) -> Source:
    """The market's, encrypted with its consumer's key: names and content."""
    key = secrets.get(KEY, "")
    if len(key) != 64:
        raise StoreRefused(f"the secret {KEY} is no store's key")
    inner = {
        "TYPE": "webdav",
        "URL": given.url,
        "VENDOR": "other",
        "BEARER_TOKEN": given.token,
    }
    outer = {
        "TYPE": "crypt",
        "REMOTE": f"{_SHELF}:",
        "PASSWORD": obscured(key[:32]),
        "PASSWORD2": obscured(key[32:]),
        "FILENAME_ENCRYPTION": "standard",
        "DIRECTORY_NAME_ENCRYPTION": "true",
    }
    named = {**_named(_SHELF, inner), **_named("store", outer)}
    return Source(REMOTE, want_web(given.url), named)


def of_consumer(store: Store, secrets: Mapping[str, str]) -> Source:
    """His own, by his user and password. StoreRefused where they are not there."""
    user, password = secrets.get(USER, ""), secrets.get(PASSWORD, "")
    if not user or not password or "\0" in user + password:
        raise StoreRefused(f"the secrets {USER} and {PASSWORD} open the store")
    if not store.is_s3:
        dav = {
            "TYPE": "webdav",
            "URL": store.url,
            "VENDOR": "other",
            "USER": user,
            "PASS": obscured(password),
        }
        return Source(REMOTE, want_web(store.url), _named("store", dav), own=True)
    bucket, prefix = store.at
    s3 = {
        "TYPE": "s3",
        "PROVIDER": "Other" if store.endpoint else "AWS",
        "ACCESS_KEY_ID": user,
        "SECRET_ACCESS_KEY": password,
        "ENV_AUTH": "false",
        "NO_CHECK_BUCKET": "true",
        **({"ENDPOINT": store.endpoint} if store.endpoint else {}),
    }
    at = want_web(store.endpoint or _AMAZON)
    return Source(f"{REMOTE}{bucket}/{prefix}", at, _named("store", s3), own=True)


def obscured(text: str) -> str:
    """As rclone takes a password; *text* goes there by a pipe."""
    try:
        done = subprocess.run(
            [PROGRAM, "obscure", "-"], input=text.encode(), capture_output=True, timeout=10,
            check=True, env=bare(),
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise StoreRefused(f"rclone obscures no password: {type(error).__name__}") from None
    return done.stdout.decode().strip()


def bare() -> dict[str, str]:
    """Of an rclone that reads no configuration of this host's."""
    kept = {"SYSTEMROOT": os.environ["SYSTEMROOT"]} if "SYSTEMROOT" in os.environ else {}
    path = os.environ.get("PATH", os.defpath)
    return {**kept, "PATH": path, "RCLONE_CONFIG": os.devnull, "HOME": "/"}


def host_of(url: str) -> str:
    """The host of an address of the web."""
    return urlsplit(url).hostname or ""


def is_here() -> bool:
    """Whether the program is on this host."""
    return shutil.which(PROGRAM) is not None


def _named(name: str, values: Mapping[str, str]) -> dict[str, str]:
    return {f"RCLONE_CONFIG_{name.upper()}_{key}": value for key, value in values.items()}
