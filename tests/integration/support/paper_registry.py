"""The market's own registry where none runs: one image in each namespace."""

from __future__ import annotations

from typing import Final

from marketplace.domain.errors import NotFound
from marketplace.market.base.ports import KeptImage

DIGEST: Final = "sha256:" + "5c" * 32


class PaperRegistry:
    """As ``OwnRegistry`` has it."""

    async def documents(self, repository: str, digest: str) -> list[str]:
        raise NotFound(f"{repository}@{digest}")

    async def holdings(self, namespace: str) -> tuple[int, list[KeptImage]]:
        found = KeptImage(f"{namespace}/train", DIGEST, ["v1"], 5000, 2, 1_700_000_000_000)
        return 5000, [found]

    async def delete(self, repository: str, digest: str) -> bool:
        return digest == DIGEST
