"""Pulling an image: bounded in what it takes of the disk, and silent about what the daemon met.

What a registry answers comes from wherever it led the daemon, the host's own network included: none
of it goes to a tenant. The owner finds it in the log.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import docker.errors
import structlog

from adapter.core.workload import ImageRefused, Progress
from adapter.runtime.docker.market_images import Login

_log = structlog.get_logger("adapter.images")
_MIB: Final = 1 << 20
_SPARE_MIB: Final = 1024
"""Left on the disk for journal and logs, whatever an image wants."""


def pull(
    client: Any,
    image: str,
    most_mib: int,
    progress: Callable[[Progress], None],
    free: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free,
    login: Login | None = None,
) -> None:
    """Pull *image* (by digest). :class:`ImageRefused` if it cannot be had, or would take more than
    *most_mib* MiB, packed or unpacked, or the last of the disk; what was pulled until then is
    dropped.
    """
    root = Path(str(client.info().get("DockerRootDir") or "/var/lib/docker"))
    room = min(most_mib, free(root) // _MIB - _SPARE_MIB) if root.exists() else most_mib
    before = free(root) if root.exists() else 0
    layers: dict[str, tuple[int, int]] = {}
    repository, _, digest = image.partition("@")
    try:
        known = {"username": login.user, "password": login.password} if login else None
        events = client.api.pull(
            repository, tag=digest, stream=True, decode=True, auth_config=known
        )
        for event in events:
            if "error" in event:
                _log.warning("image not pulled", image=image, cause=str(event["error"])[:300])
                raise not_had(image)
            detail = cast("dict[str, int]", event.get("progressDetail") or {})
            if "id" in event and detail.get("total") and event.get("status") == "Downloading":
                layers[event["id"]] = (detail.get("current", 0), detail["total"])
            done = sum(done for done, _total in layers.values())
            total = sum(total for _done, total in layers.values())
            taken = before - free(root) if root.exists() else done
            if max(total, taken) > room * _MIB:
                events.close()  # the daemon stops when nobody listens, and drops what it had
                raise ImageRefused(f"{image} takes more than {room} MiB of the disk", image=image)
            progress(Progress(done, total, str(event.get("status", ""))))
    except docker.errors.APIError as error:
        _log.warning("image not pulled", image=image, cause=str(error.explanation or error)[:300])
        raise not_had(image) from None
    size = int(client.images.get(image).attrs.get("Size") or 0)
    if size > room * _MIB:
        client.images.remove(image)
        raise ImageRefused(f"{image} takes more than {room} MiB of the disk", image=image)


def not_had(image: str) -> ImageRefused:
    """What a tenant hears of a registry that does not give an image; the cause is in the owner's
    log.
    """
    registry_says = (
        "its registry does not give it to this host: is it public or yours, is the digest right?"
    )
    return ImageRefused(f"{image}: {registry_says}", image=image)
