"""Images of the market's own registry: which names are its, and how a lease's provider asks there.

The market says the name of its registry. It is believed only for the market's own host, or a name
under it: a market cannot send this host's daemon to any other place by that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, cast

import httpx

from adapter.core.registries import is_of, registry_of
from adapter.core.workload import RuntimeFault
from marketplace.domain.keys import Signer
from marketplace.domain.site import origin_of
from marketplace.domain.work.image_access import LEASE_USER, PULL_MS, SignedPull

KNOWN_S: Final = 600.0
_MOST: Final = 64 << 10
_OK: Final = 200


@dataclass(frozen=True)
class Login:
    """What a registry is told of who asks."""

    user: str
    password: str = field(repr=False)


class MarketImages:
    """The registry of the market at *market*, for the provider whose metering key is *signer*."""

    def __init__(
        self,
        market: str,
        signer: Signer,
        wall_ms: Callable[[], int],
        get: Callable[..., httpx.Response] = httpx.get,
    ) -> None:
        self._market, self._signer = origin_of(market), signer
        self._wall_ms, self._get = wall_ms, get
        self._lock = threading.Lock()
        self._name, self._until = "", 0.0

    def login(self, image: str, lease: str) -> Login | None:
        """To pull *image* for *lease*; None for one of another registry, and for no lease.
        RuntimeFault when the market cannot be asked; blocks.
        """
        repository = image.partition("@")[0]
        if not lease or not self.has(image):
            return None
        registry = registry_of(repository)
        path, until = repository.partition("/")[2], self._wall_ms() + PULL_MS
        pull = SignedPull.sign(self._signer, registry, path, lease, until)
        return Login(LEASE_USER, pull.password)

    def has(self, image: str) -> bool:
        """Whether *image* is in the market's registry. RuntimeFault; blocks."""
        registry = registry_of(image.partition("@")[0])
        if image.startswith("sha256:") or not is_of(self._market, registry):
            return False
        return registry == self.name()

    def popular(self) -> list[tuple[str, int]]:
        """(name by digest, packed bytes) of images that many run and anybody may pull, the most
        used first. RuntimeFault; blocks.
        """
        try:
            answer = self._get(f"{self._market}/v1/images/popular", timeout=10)
            if answer.status_code != _OK or len(answer.content) > _MOST:
                return []
            said = cast("dict[str, Any]", answer.json())
            return [(str(one["image"]), int(one["bytes"])) for one in said["items"]]
        except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RuntimeFault(f"the market cannot be asked what is popular: {error}") from error

    def name(self) -> str:
        """The registry's; empty where the market has none."""
        with self._lock:
            if time.monotonic() < self._until:
                return self._name
            self._name = self._ask()
            self._until = time.monotonic() + KNOWN_S
            return self._name

    def _ask(self) -> str:
        try:
            answer = self._get(f"{self._market}/v1/registry", timeout=10)
            if answer.status_code >= 500:
                raise RuntimeFault(f"the market says of no registry: status {answer.status_code}")
            if answer.status_code != _OK or len(answer.content) > _MOST:
                return ""
            said = cast("dict[str, Any]", answer.json())
            return str(said.get("name", ""))
        except (httpx.HTTPError, ValueError, AttributeError) as error:
            raise RuntimeFault(f"the market cannot be asked for its registry: {error}") from error
