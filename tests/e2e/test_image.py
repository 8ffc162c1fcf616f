"""`tally image`: an image of one's own, pushed, run by the provider of a lease, kept from others
and deleted; over the embedded market's registry and the machine's own Docker.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.errors import APIError, ImageNotFound

from marketplace.client.sdk.market import Market
from marketplace.domain.errors import TallyError
from marketplace.domain.money.keep import AT_ONCE
from tests.e2e.support.embedded import PATIENCE_S, PURSE, World, story, tally
from tests.fakes import until
from tests.ports import free_port
from tests.requires import need_registry

pytestmark = [pytest.mark.timeout(PATIENCE_S + 120), pytest.mark.docker]


def job_file(folder: Path, image: str) -> str:
    path = folder / "job.json"
    said = {
        "version": 1, "name": "mine", "image": image,
        "command": ["cat", "/made-here"],
        "resources": {"cpu": 0.5, "memory": "128MB"},
        "price": {"budget": "5 ADA"}, "policy": {"max_duration": "10m"},
    }  # fmt: skip
    path.write_text(json.dumps(said))
    return str(path)


def made_here(base: str, name: str) -> str:
    """An image that nobody else has: *base*, and a file that says so; its secret."""
    secret = uuid.uuid4().hex
    client = docker.from_env()
    try:
        started = client.containers.create(base, ["sh", "-c", f"echo {secret} > /made-here"])
        started.start()
        started.wait()
        started.commit(name, "local")
        started.remove()
    finally:
        client.close()
    return secret


def forgotten(*names: str) -> None:
    client = docker.from_env()
    try:
        for name in names:
            client.images.remove(name, force=True)
    finally:
        client.close()


def test_a_private_image_is_run_for_its_owner_and_kept_from_others(tmp_path: Path) -> None:
    need_registry()
    local = f"tally-test/{uuid.uuid4().hex[:12]}"

    async def tell(world: World) -> None:
        env = world.place.environment
        secret = made_here(world.place.image, local)
        pushed = await said(env, "image", "push", f"{local}:local", "--as", "train:v1")
        assert pushed["moved"] >= 1 and not pushed["public"]
        forgotten(f"{local}:local", pushed["name"])  # so that it must be pulled
        again = await said(env, "image", "list")
        assert [one["tags"] for one in again["items"]] == [["v1"]]
        assert again["items"][0]["image"] == pushed["image"]
        file = job_file(tmp_path, pushed["name"])
        start = (await said(env, "job", "quote", file))["expected_start"]
        # The market asked its registry what the image is made of; its base is on the host, which
        # nobody told in the registry's words.
        beside = (
            start["pull_bytes"] - again["items"][0]["bytes"]
        )  # it counts manifests, not what a pull reads anew
        assert not start["here"] and abs(beside) < 100_000, start
        ran = await tally("job", "run", file, "--yes", env=env)
        assert ran.process.returncode == 0 and secret in str(ran.out), str(ran)
        await is_here(world, file, pushed["image"])
        await kept_from_others(world, pushed["image"])
        gone = await said(env, "image", "rm", "train:v1", "--yes")
        assert len(gone["deleted"]) == 1
        assert (await said(env, "image", "list"))["items"] == []
        refused = await tally("image", "rm", "train:v1", "--yes", env=env)
        assert refused.process.returncode == 3 and "NO_IMAGE" in str(refused)
        pinned = job_file(tmp_path, pushed["image"])
        failed = await tally("job", "run", pinned, "--yes", env=env)
        assert failed.process.returncode == 1 and "START_FAILED" in str(failed)
        named = job_file(tmp_path, pushed["name"])
        refused = await tally("job", "run", named, "--yes", env=env)
        assert refused.process.returncode == 3 and "IMAGE_NOT_PINNED" in str(refused)

    story(tmp_path, tell, registry=free_port())


async def is_here(world: World, file: str, image: str) -> None:
    """What the provider's host has now is in quotes, and in its own status."""
    env = world.place.environment

    async def quoted() -> bool:
        return bool((await said(env, "job", "quote", file))["expected_start"]["here"])

    await until(quoted, 30)
    start = (await said(env, "job", "quote", file))["expected_start"]
    assert start["pull_bytes"] == 0 and start["bytes_s"] > 0 and start["ms"] > 0
    table = await tally("job", "quote", file, env=env)
    assert "s, image here" in str(table.out)
    shown = await tally("offers", "search", "--image", image, env=env)
    assert "nobody can say" in str(shown.out), "it is another's to whoever is not signed in"
    state = str(world.place.home / "adapter")
    stock = (await said(env, "adapter", "status", "--state", state))["stock"]
    assert stock["images"] >= 1 and stock["start_ms"] > 0 and stock["pull_bytes_s"] > 0


async def said(env: dict[str, str], *words: str) -> dict[str, Any]:
    """What a command says as JSON."""
    ran = await tally(*words, "--json", env=env)
    assert ran.process.returncode == 0, str(ran)
    return ran.last


async def kept_from_others(world: World, image: str) -> None:
    """The provider has it on its host by now; nobody else's job is run on it for that."""
    purse = await world.place.consumer(PURSE // 10, "stranger")
    async with Market(
        world.place.market_url, wallet=purse, chain_url=world.place.chain_url, keep=AT_ONCE
    ) as market:
        with pytest.raises(TallyError) as no:
            await market.run(Path(job_file(world.folder, image)))
        assert no.value.code == "IMAGE_PRIVATE"
    forgotten(image)  # a daemon that has it asks nobody: the adapter does, before each start
    client = docker.from_env()
    try:
        repository, _, digest = image.partition("@")
        try:  # it answers with a status, or in the stream of what it does
            answered = str(client.api.pull(repository, digest))
        except APIError as no_status:
            answered = str(no_status)
        assert "denied" in answered, answered
        with pytest.raises(ImageNotFound):
            client.images.get(image)
    finally:
        client.close()
