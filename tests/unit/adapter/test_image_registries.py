"""Which registries a host's daemon is sent to, and what a pull may take and tell."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from adapter.core.registries import refused, registry_of
from adapter.core.workload import ImageRefused, Progress
from adapter.runtime.docker.pull import pull

DIGEST = "@sha256:" + "ab" * 32
INWARD = [
    "127.0.0.1:5000/x", "10.0.0.7/x", "169.254.169.254/latest", "[::1]:80/x", "localhost/x",
    "registry.internal/x", "hub.lan/x", "db.corp./x", "registry:5000/x",
    "ghcr.io:8080/x", "0x7f.1/x", "2130706433.1/x",
]  # fmt: skip


@pytest.mark.parametrize(
    ("repository", "registry"),
    [
        ("python", "docker.io"), ("library/python", "docker.io"), ("docker.io/library/python", "docker.io"),
        ("ghcr.io/acme/x", "ghcr.io"), ("GHCR.IO/acme/x", "ghcr.io"), ("localhost/x", "localhost"),
        ("host:5000/x", "host:5000"), ("10.1.2.3/x", "10.1.2.3"),
    ],
)  # fmt: skip
def test_the_registry_is_the_one_that_a_daemon_would_ask(repository: str, registry: str) -> None:
    assert registry_of(repository) == registry


@pytest.mark.parametrize(
    "image", ["python", "docker.io/a/b", "ghcr.io/a/b", "quay.io/a/b", "nvcr.io/nvidia/cuda"]
)
def test_the_public_registries_are_open_by_default(image: str) -> None:
    assert refused(image + DIGEST, ()) == ""


@pytest.mark.parametrize("image", [*INWARD, "registry.example.com/x"])
def test_nothing_else_is_by_default(image: str) -> None:
    assert "public registries" in refused(image + DIGEST, ())


@pytest.mark.parametrize("image", INWARD)
def test_no_pattern_leads_inward_but_one_that_names_the_place(image: str) -> None:
    assert refused(image + DIGEST, ("*",)) and refused(image + DIGEST, (image[:4] + "*",))
    assert refused(image + DIGEST, (registry_of(image) + "/*",)) == ""
    assert refused(image + DIGEST, (image,)) == ""


def test_an_owners_list_is_a_list() -> None:
    assert refused("ghcr.io/acme/x" + DIGEST, ("ghcr.io/acme/*",)) == ""
    assert "not on the owner's list" in refused("ghcr.io/acmes/x" + DIGEST, ("ghcr.io/acme/",))
    assert refused("registry.example.com/x" + DIGEST, ("*",)) == ""


class Daemon:
    """As much of docker-py as a pull needs."""

    def __init__(self, *events: dict[str, Any], size: int = 0) -> None:
        self.events, self.size, self.closed, self.removed = events, size, False, [""]
        self.api = self.images = self

    def info(self) -> dict[str, Any]:
        return {"DockerRootDir": "/"}

    def pull(self, *_a: object, **_k: object) -> Iterator[dict[str, Any]]:
        try:
            yield from self.events
        finally:
            self.closed = True

    def get(self, _image: str) -> Any:
        return SimpleNamespace(attrs={"Size": self.size})

    def remove(self, image: str) -> None:
        self.removed.append(image)


def _layer(total: int) -> dict[str, Any]:
    return {"id": "l1", "status": "Downloading", "progressDetail": {"current": 1, "total": total}}


def _pull(daemon: Daemon, taken: int = 0) -> None:
    looks = iter((1 << 40, 1 << 40))
    pull(daemon, "a/b" + DIGEST, 100, lambda _p: None, lambda _r: next(looks, (1 << 40) - taken))


def test_what_the_daemon_met_is_not_passed_on() -> None:
    daemon = Daemon({"error": 'parsing HTTP 404 response body: "INTERNAL-SECRET"'})
    with pytest.raises(ImageRefused) as no:
        _pull(daemon)
    assert "INTERNAL" not in str(no.value) and "HTTP" not in str(no.value)


def test_a_layer_that_is_too_large_is_not_waited_for() -> None:
    daemon = Daemon(_layer(101 << 20), {"status": "never read"})
    with pytest.raises(ImageRefused, match="100 MiB"):
        _pull(daemon)
    assert daemon.closed


def test_what_unpacks_beyond_the_limit_is_stopped_while_it_unpacks() -> None:
    daemon = Daemon(_layer(1000), {"id": "l1", "status": "Extracting"})
    with pytest.raises(ImageRefused, match="100 MiB"):
        _pull(daemon, taken=101 << 20)
    assert daemon.closed


def test_an_image_that_turns_out_too_large_is_removed() -> None:
    daemon = Daemon(_layer(1000), size=101 << 20)
    with pytest.raises(ImageRefused, match="100 MiB"):
        _pull(daemon)
    assert daemon.removed[-1] == "a/b" + DIGEST
    told: list[Progress] = []
    pull(Daemon(_layer(1000), size=99 << 20), "a/b" + DIGEST, 100, told.append, lambda _r: 1 << 40)
    assert told and told[-1].total == 1000
