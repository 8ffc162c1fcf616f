"""What a start is expected to take: by what an image is made of, and what a host has of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from marketplace.domain.errors import Conflict, Malformed, TallyError
from marketplace.domain.supply.stock import digest_of, print_of
from marketplace.domain.work import manifest
from marketplace.domain.work.image_names import DIGEST
from marketplace.market.accounts import images
from marketplace.market.base.ports import Change
from marketplace.market.base.records import ImageRecord
from marketplace.market.context import Market, log
from marketplace.matching import Start

ASKED_AGAIN_MS: Final = 60_000
"""The market's own registry is asked for one image no more often."""


async def bring(market: Market, image: str) -> str:
    """The digest of *image*, of which the directory knows what there is to know; "" where the job
    runs no image.
    """
    digest = digest_of(image)
    if not DIGEST.fullmatch(digest) or market.directory.images.known(digest):
        return digest
    record = await market.store.get(ImageRecord, digest)
    parts = [(bytes.fromhex(name), size) for name, size in record.parts] if record else []
    market.directory.images.learn(digest, parts)
    if not parts:
        await _ask_own(market, image, digest)
    return digest


async def of(market: Market, image: str, offer: str) -> Start | None:
    """What starting *image* at *offer* is expected to take; None where nobody can say."""
    digest = await bring(market, image)
    return market.directory.images.start(digest, offer) if digest else None


async def told(market: Market, image: str, offer: str, account: str) -> dict[str, Any] | None:
    """The same as an answer, to *account*, or to anybody (""): of another account's image it hears
    nothing.
    """
    if not await images.readable(market, account, images.ours(market, image)):
        return None
    start = await of(market, image, offer)
    return start and {
        "ms": start.ms, "here": start.here, "pull_bytes": start.lacking, "bytes_s": start.bytes_s,
    }  # fmt: skip


async def keep(market: Market, digest: str, parts: Sequence[manifest.Layer]) -> None:
    """Remember what the image *digest* is made of."""
    found = [(print_of(one.digest), one.size) for one in parts]
    market.directory.images.learn(digest, found)
    if await market.store.get(ImageRecord, digest) is None:
        record = ImageRecord(digest, [(name.hex(), size) for name, size in found], market.now)
        try:
            await market.store.apply(Change(puts=[record]))
        except Conflict:
            log.info("image", digest=digest, what="told by another at the same time")


async def _ask_own(market: Market, image: str, digest: str) -> None:
    """Of an image in the market's registry: what it is made of, before anybody ran it."""
    repository = images.ours(market, image)
    if not repository or market.own_registry is None:
        return
    asked = market.asked_manifests
    if asked.get(digest, -ASKED_AGAIN_MS) > market.now - ASKED_AGAIN_MS:
        return
    if len(asked) >= 4096:
        asked.clear()
    asked[digest] = market.now
    try:
        documents = await market.own_registry.documents(repository, digest)
        await keep(market, digest, manifest.layers(digest, documents))
    except (TallyError, Malformed) as error:
        log.info("image", image=image, error=error.line())
