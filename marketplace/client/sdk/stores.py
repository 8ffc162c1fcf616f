"""An account's stores at a market, which its clusters write to: what lies there, by rclone."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from marketplace import rclone
from marketplace.client.net.cluster_answers import StoreAnswer, StorePassAnswer
from marketplace.client.net.reading import read, read_all
from marketplace.client.sdk.read_only import PurseNeeded, Reader
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.work.cluster_store import KEY, Store, StorePass, key_of


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
    PurseNeeded, Malformed for what cannot be a store's name.
    """
    if not rclone.is_here():
        raise RcloneMissing(f"there is no {rclone.PROGRAM} on this machine")
    if opened.purse is None:
        raise PurseNeeded("what lies in a store is encrypted by the purse")
    path = f"/v1/stores/{quote(Store(name).name)}/pass"
    answer = read(StorePassAnswer, await opened.http.post(path, {}), "store's pass")
    given = StorePass.from_wire([answer["url"], answer["token"]])
    if opened.url.startswith("https:") and not given.url.startswith("https:"):
        raise Malformed(f"{opened.url} names a store that is not reached by TLS: {given.url}")
    return rclone.of_market(given, {KEY: key_of(opened.purse.signer.seed, name)}).environment
