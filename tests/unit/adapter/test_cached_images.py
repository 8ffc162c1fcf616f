"""An image that another lease brought onto the host is run only for whoever may pull it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adapter.core.workload import ImageRefused
from adapter.runtime.docker import images
from adapter.runtime.docker.market_images import Login
from adapter.runtime.docker.shelf import Shelf

IMAGE = "images.test/abc/x@sha256:" + "ab" * 32


class Daemon:
    """One that has every image."""

    class images:
        @staticmethod
        def get(name: str) -> Any:
            return type("Image", (), {"id": f"id of {name}"})


def test_the_registry_is_asked_although_the_image_is_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shelf = Shelf(tmp_path / "images.json")
    login = Login("lease", "signed")
    asked: list[Any] = []

    def no(_client: Any, image: str, by: Any) -> None:
        asked.append((image, by))
        raise ImageRefused("not yours")

    monkeypatch.setattr(images, "require_whole", no)
    with pytest.raises(ImageRefused):
        images.bring(Daemon(), IMAGE, 10, lambda _: None, shelf, login=login)
    assert asked == [(IMAGE, login)]
    # One of another registry is anybody's who names its digest.
    assert images.bring(Daemon(), IMAGE, 10, lambda _: None, shelf) == f"id of {IMAGE}"
