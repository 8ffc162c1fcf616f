"""The image of this machine's Python is what was imported, and nothing that says it is."""

from __future__ import annotations

import io
import tarfile
import uuid
from collections.abc import Generator
from typing import Any

import pytest

from adapter.runtime.docker.door import connect
from adapter.runtime.docker.local_images import build_python
from tests.requires import need_docker

pytestmark = pytest.mark.docker


@pytest.fixture
def client() -> Generator[Any]:
    need_docker()
    made = connect("")
    yield made
    made.close()


def test_an_image_with_its_label_is_not_taken_for_it(client: Any) -> None:
    names = [f"tally-test/{uuid.uuid4().hex[:12]}" for _ in range(4)]
    try:
        built = build_python(client, names[0])
        label = client.images.get(built).labels
        for name, changes in (
            (names[1], [f"LABEL {key}={value}" for key, value in label.items()]),
            (names[2], [*(f"LABEL {k}={v}" for k, v in label.items()), 'CMD ["/bin/sh"]']),
        ):
            archive = io.BytesIO()
            with tarfile.open(fileobj=archive, mode="w") as packed:
                packed.addfile(tarfile.TarInfo("evil"), io.BytesIO())
            client.api.import_image_from_data(
                archive.getvalue(), repository=name, tag="local", changes=changes
            )
        on_it = client.containers.create(built, ["true"])
        on_it.commit(names[3], "local")
        on_it.remove()
        assert client.images.get(f"{names[3]}:local").labels == label
        for _ in range(2):
            assert build_python(client, names[0]) == built
        client.images.remove(f"{names[0]}:local")  # others may still call it by another name
        again = client.images.get(build_python(client, names[0]))
        assert again.attrs["RootFS"] == {"Type": "layers", "Layers": [f"sha256:{label_of(label)}"]}
        assert again.attrs["Config"]["Cmd"] == ["/usr/local/bin/python3"]
    finally:
        for name in names:
            for image in client.images.list(name):
                for tag in image.tags:
                    if tag.startswith(name):
                        client.images.remove(tag, force=True)


def label_of(labels: dict[str, str]) -> str:
    (value,) = labels.values()
    return value


def test_a_container_compiles_nothing_that_it_imports(client: Any) -> None:
    name = f"tally-test/{uuid.uuid4().hex[:12]}"
    looks = "import asyncio, json, os, sys; c = [m.__cached__ for m in sys.modules.values() if \
getattr(m, '__cached__', None)]; print(json.dumps([p for p in c if not os.path.exists(p)]), len(c))"
    try:
        said = client.containers.run(
            build_python(client, name), ["python3", "-c", looks], remove=True, user="10001",
            read_only=True,
        ).decode()  # fmt: skip
        missing, count = said.rsplit(" ", 1)
        assert missing == "[]" and int(count) > 50
    finally:
        client.images.remove(f"{name}:local", force=True)
