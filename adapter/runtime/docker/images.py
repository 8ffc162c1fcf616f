"""An image that a job names, brought onto the host if its owner allows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import docker.errors

from adapter.core import registries
from adapter.core.workload import ImageRefused, Progress
from adapter.runtime.docker.config import DockerConfig
from adapter.runtime.docker.manifest import require_whole
from adapter.runtime.docker.market_images import Login
from adapter.runtime.docker.pull import pull
from adapter.runtime.docker.shelf import Shelf
from marketplace.domain.supply.stock import digest_of


def require_allowed(config: DockerConfig, image: str, *, ours: bool = False) -> None:
    """:class:`ImageRefused` if the owner does not allow *image*. *ours*: it is of the market's
    registry, from which images are taken unless the owner's list says otherwise.
    """
    if image.startswith("sha256:"):
        if not config.local:
            raise ImageRefused("this offer takes no image that is only on the host")
    else:
        why = "" if ours and not config.allow else registries.refused(image, config.allow)
        if why:
            raise ImageRefused(why, image=image.partition("@")[0])


def bring(
    client: Any,
    image: str,
    most_mib: int,
    progress: Callable[[Progress], None],
    shelf: Shelf,
    lease: str = "",
    login: Login | None = None,
) -> str:
    """The id of *image*, which is on the host then: pulled unless it is there. *shelf* is told what
    it is made of, and what pulling it for *lease* took.

    *most_mib*: what pulling may take of the disk. :class:`ImageRefused` by its manifests. *login*:
    for the market's registry, which is asked also when the image is here: another account's lease
    may have brought it.
    """
    digest = digest_of(image)
    documents = require_whole(client, image, login) if login is not None else []
    try:
        found = client.images.get(image)
        shelf.used(digest, documents, lease)
    except docker.errors.ImageNotFound:
        if image.startswith("sha256:"):
            raise
        if login is None:
            documents = require_whole(client, image)
        shelf.used(digest, documents, lease)
        lacked, begun = shelf.lacking(digest), shelf.clock()
        pull(client, image, most_mib, progress, login=login)
        shelf.pulled(digest, lease, lacked, shelf.clock() - begun)
        found = client.images.get(image)
    progress(Progress(1, 1, "ready"))
    return str(found.id)
