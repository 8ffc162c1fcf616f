"""The images of a host's Docker daemon, for whoever counts and keeps them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import docker.errors
import structlog

from adapter.core.shelving import Shelving, Stock
from adapter.core.workload import ImageRefused, Progress
from adapter.runtime.docker.door import map_docker
from adapter.runtime.docker.market_images import MarketImages
from adapter.runtime.docker.shelf import Shelf

_log = structlog.get_logger("adapter.images")
_MIB: Final = 1 << 20


class ImageStore:
    """What :class:`adapter.daemon.stocktaking.Stocktaking` counts. *prepare*: the runtime's, which
    pulls by the owner's rules.
    """

    def __init__(
        self,
        shelf: Shelf,
        docker: Callable[[], Any],
        market: MarketImages | None,
        prepare: Callable[[str, Callable[[Progress], None], str], str],
    ) -> None:
        self._shelf, self._docker, self._market = shelf, docker, market
        self._prepare = prepare
        self._passed: set[str] = set()  # popular ones that could not be had, or were let go

    @property
    def changes(self) -> int:
        """Goes up with each that what is told may differ by."""
        return self._shelf.changes

    def stock(self) -> Stock:
        """What is on the host now; RuntimeFault."""
        with map_docker("images"):
            return self._shelf.look(self._docker())

    def found(self) -> list[tuple[str, list[str]]]:
        """(lease, documents) of images that were read since the last call."""
        return self._shelf.take_found()

    def evict(self, rule: Shelving) -> list[str]:
        """Remove what *rule* lets go; RuntimeFault."""
        with map_docker("images"):
            gone = self._shelf.evict(self._docker(), rule)
        self._passed |= set(gone)  # not fetched ahead again
        return gone

    def fetch(self, rule: Shelving) -> str:
        """Bring one of the market's popular images that is not here; its name, or "" where none is
        wanted. RuntimeFault.
        """
        if self._market is None:
            return ""
        for name, size in self._market.popular()[: rule.ahead]:
            digest = name.partition("@")[2]
            if digest in self._passed or size > rule.ahead_mib * _MIB or self._is_here(name):
                continue
            self._passed.add(digest)
            try:
                with map_docker(f"image {name}"):
                    self._prepare(name, lambda _progress: None, "")
            except ImageRefused as refused:
                _log.info("image not fetched ahead", image=name, cause=refused.message)
                continue
            return name
        return ""

    def _is_here(self, name: str) -> bool:
        with map_docker("images"):
            try:
                self._docker().images.get(name)
            except docker.errors.ImageNotFound:
                return False
        return True
