"""An image that a job names, brought onto the host if its owner allows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import docker.errors

from adapter.core import registries
from adapter.core.workload import ImageRefused, Progress
from adapter.runtime.docker.config import DockerConfig
from adapter.runtime.docker.manifest import require_whole
from adapter.runtime.docker.pull import pull


def require_allowed(config: DockerConfig, image: str) -> None:
    """:class:`ImageRefused` if the owner does not allow *image*."""
    if image.startswith("sha256:"):
        if not config.local:
            raise ImageRefused("this offer takes no image that is only on the host")
    else:
        why = registries.refused(image, config.allow)
        if why:
            raise ImageRefused(why, image=image.partition("@")[0])


def bring(client: Any, image: str, most_mib: int, progress: Callable[[Progress], None]) -> str:
    """The id of *image*, which is on the host then: pulled unless it is there.

    *most_mib*: what pulling may take of the disk. :class:`ImageRefused` by its manifests.
    """
    try:
        found = client.images.get(image)
    except docker.errors.ImageNotFound:
        if image.startswith("sha256:"):
            raise
        require_whole(client, image)
        pull(client, image, most_mib, progress)
        found = client.images.get(image)
    progress(Progress(1, 1, "ready"))
    return str(found.id)
