"""Pushing an image that this machine's Docker has: the daemon moves the layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

import docker
import docker.errors

from marketplace.client.images.registry import NoImage, NotPushed
from marketplace.domain.errors import Fault
from marketplace.domain.work.image_names import Reference

_DEADLINE_S: Final = 600
_THERE: Final = ("Layer already exists", "Mounted from")


class DockerAway(Fault):
    """No Docker answers on this machine."""

    code = "DOCKER_AWAY"
    remedy = "start Docker, or name its socket: DOCKER_HOST"


@dataclass(frozen=True)
class Pushed:
    """*name* at its *digest*; *moved* of its *layers* were sent, the others were there."""

    name: str
    digest: str
    layers: int
    moved: int


def push(image: str, to: Reference, password: str, told: Callable[[int, int], None]) -> Pushed:
    """Push *image* of this machine's Docker as *to*; blocks. *password*: of the market's account;
    the daemon is told it for this push alone. *told*: bytes sent, of how many, as it goes on.
    DockerAway, NoImage, NotPushed.
    """
    repository = f"{to.host}/{to.repository}"
    try:
        client: Any = docker.from_env(timeout=_DEADLINE_S)
    except docker.errors.DockerException as error:
        raise DockerAway(f"Docker does not answer: {error}") from error
    try:
        client.images.get(image).tag(repository, to.tag)
        events = client.api.push(
            repository, to.tag, stream=True, decode=True,
            auth_config={"username": "token", "password": password},
        )  # fmt: skip
        return _followed(events, to, told)
    except docker.errors.ImageNotFound:
        raise NoImage(
            f"this machine's Docker has no image {image}", remedy="`docker images` names them"
        ) from None
    except docker.errors.APIError as error:
        raise NotPushed(f"{image}: {error.explanation or error}") from error
    finally:
        client.close()


def _followed(
    events: Iterable[dict[str, Any]], to: Reference, told: Callable[[int, int], None]
) -> Pushed:
    layers: dict[str, str] = {}
    sent: dict[str, tuple[int, int]] = {}
    digest = ""
    for event in events:
        if "error" in event:
            raise NotPushed(f"{to.repository}:{to.tag}: {str(event['error'])[:300]}")
        status, layer = str(event.get("status", "")), str(event.get("id", ""))
        if layer:
            layers[layer] = status
        detail = cast("dict[str, int]", event.get("progressDetail") or {})
        if layer and detail.get("total"):
            sent[layer] = (detail.get("current", 0), detail["total"])
            told(sum(done for done, _ in sent.values()), sum(most for _, most in sent.values()))
        aux = cast("dict[str, str]", event.get("aux") or {})
        digest = aux.get("Digest") or digest
    if not digest:
        raise NotPushed(f"{to.repository}:{to.tag}: the daemon told no digest")
    known = [status for layer, status in layers.items() if layer != to.tag]
    there = sum(status.startswith(_THERE) for status in known)
    return Pushed(f"{to.host}/{to.repository}:{to.tag}", digest, len(known), len(known) - there)
