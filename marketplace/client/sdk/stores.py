"""An account's stores at a market, which its clusters write to: what lies there, by rclone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from marketplace import rclone
from marketplace.client.net.cluster_answers import StoreAnswer, StorePassAnswer
from marketplace.client.net.reading import AnswerUnreadable, read, read_all
from marketplace.client.sdk.read_only import PurseNeeded, Reader
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.work.cluster_store import KEY, Store, StorePass, key_of

_OWN: Final = {
    # What lies there has a size and no time of its own: of two files that are equally long rclone
    # would copy none, and a checkpoint is as long as the one before.
    "RCLONE_IGNORE_TIMES": "true",
    # The market's server has neither: rclone does both by itself.
    "RCLONE_DISABLE": "Copy,Purge",
    # Where the user's own configuration has a remote of that name, nothing of it counts.
    "RCLONE_CONFIG_STORE_NO_DATA_ENCRYPTION": "false",
    "RCLONE_CONFIG_STORE_FILENAME_ENCODING": "base32",
    "RCLONE_CONFIG_STORE_SUFFIX": ".bin",
}


class RcloneMissing(Refusal):
    """The program that reads and writes stores is not on this machine."""

    code = "RCLONE_MISSING"
    remedy = "install rclone: `apt install rclone`, `brew install rclone`, or https://rclone.org"


async def listed(opened: Reader) -> list[StoreAnswer]:
    """Those that are there, by name."""
    return read_all(StoreAnswer, await opened.http.all("/v1/stores"), "stores")


async def removed(opened: Reader, name: str) -> None:
    """*name* goes with all that lies in it; Malformed for what cannot be a store's name."""
    await opened.http.delete(f"/v1/stores/{quote(Store(name).name)}")


async def environment(opened: Reader, name: str) -> Mapping[str, str]:
    """By which an rclone of this machine finds the store *name* as ``store:``, for an hour. It
    decrypts what lies there with the key that follows from the purse. :class:`RcloneMissing`,
    PurseNeeded, AnswerUnreadable, Malformed for what cannot be a store's name.
    """
    if not rclone.is_here():
        raise RcloneMissing(f"there is no {rclone.PROGRAM} on this machine")
    if opened.purse is None:
        raise PurseNeeded("what lies in a store is encrypted by the purse")
    path = f"/v1/stores/{quote(Store(name).name)}/pass"
    answer = read(StorePassAnswer, await opened.http.post(path, {}), "store's pass")
    try:
        given = StorePass.from_wire([answer["url"], answer["token"]])
    except Malformed as error:
        raise AnswerUnreadable(f"store's pass: {error.message}") from error
    if opened.url.startswith("https:") and not given.url.startswith("https:"):
        raise AnswerUnreadable(f"store's pass: {given.url} is not reached by TLS, as the market is")
    source = rclone.of_market(given, {KEY: key_of(opened.purse.signer.seed, name)})
    return {**source.environment, **_OWN}
