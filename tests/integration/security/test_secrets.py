"""Secrets are made in every way that there is, and then searched for everywhere in the market.

Everywhere: every column of the database, the raw bytes of its files, of the blobs and the keystore,
what the process printed, and what every GET of the API and every page of the console answers.

Over 400 lines: what makes the secrets and what looks for them are read side by side.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx
import pytest
import sqlalchemy as sa

from marketplace.client.wallet.purse import Purse
from marketplace.domain.keys import seal_to, unseal
from marketplace.domain.money.receipt import SignedReceipt
from marketplace.domain.protocol import wire
from marketplace.domain.work.cluster import Cluster
from marketplace.domain.work.parts import Gang, Port
from marketplace.keystore import Keystore
from marketplace.market.accounts.webhooks import check_key, secret_of
from marketplace.market.base.errors import HookKeyWrong, HooksOff
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Hook, Setting
from marketplace.market.upkeep import operator
from marketplace.store.engines import create_engine, normal_url
from marketplace.store.migrate import config, migrate
from tests.fake_router import TX, FakeRouter
from tests.fakes import FakeAdapter, gpu, offer, seed, spec, until, working
from tests.integration.market.test_access import FAR
from tests.integration.market.test_spine import body, quoted, state
from tests.integration.support.market import fast, market, postgres, sign_in
from tests.integration.support.paper_registry import PaperRegistry
from tests.integration.support.paper_stores import named, on_paper

Found = list[tuple[str, str]]
PLANTED = "whsec_" + "5e" * 32


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/m.db"
    else:
        with postgres() as url:
            yield url


# ---- searching -----------------------------------------------------------------------------------


def forms(secret: bytes | str) -> set[bytes]:
    """How a secret could lie somewhere: as it is, its random bytes, hex, base64."""
    text = secret.encode() if isinstance(secret, str) else secret
    digits = re.search(r"[0-9a-f]{64}$", secret) if isinstance(secret, str) else None
    raw = bytes.fromhex(digits.group()) if digits else text
    every = {text, raw, text.hex().encode(), raw.hex().encode()}
    for data in (text, raw):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            every.add(encode(data).rstrip(b"="))
    return every


def search(places: dict[str, bytes], secrets: dict[str, bytes | str]) -> Found:
    """(secret, place) of each that was found."""
    wanted = [(name, form) for name, secret in secrets.items() for form in forms(secret)]
    return sorted({(n, p) for p, data in places.items() for n, form in wanted if form in data})


def columns(url: str) -> dict[str, bytes]:
    """Every column of every table as the database gives it."""
    engine = create_engine(normal_url(url))
    tables = sa.MetaData()
    found: dict[str, bytes] = {}
    try:
        tables.reflect(engine)
        with engine.connect() as connection:
            for table in tables.tables.values():
                for row in connection.execute(sa.select(table)).mappings():
                    for name, value in row.items():
                        data = bytes(value) if isinstance(value, (bytes, memoryview)) else None
                        place = f"column {table.name}.{name}"
                        found[place] = (
                            found.get(place, b"") + b"\n" + (data or repr(value).encode())
                        )
    finally:
        engine.dispose()
    return found


def files(*folders: Path) -> dict[str, bytes]:
    """The raw bytes of everything that lies there."""
    every = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    return {f"file {path}": path.read_bytes() for path in every}


def folders_of(url: str, tmp_path: Path) -> tuple[Path, ...]:
    """Where the database's files lie, and all else that the market wrote."""
    host = parse_qs(urlsplit(url).query).get("host")
    return (tmp_path, Path(host[0])) if host else (tmp_path,)


async def every_get(
    client: httpx.AsyncClient, paths: list[str], values: dict[str, list[str]]
) -> dict[str, bytes]:
    """What each GET answers, headers and all, with each value of its parameters."""
    told: dict[str, bytes] = {}
    for path in paths:
        named = re.findall(r"\{(\w+)\}", path)
        filled = [path]
        for name in named:
            filled = [
                one.replace("{" + name + "}", value) for one in filled for value in values[name]
            ]
        answered = 0
        for one in filled:
            queries = ("", "?follow=true") if path.endswith(("/logs", "/events")) else ("",)
            if path == "/v1/app-origins":
                queries = tuple(f"?domain={name}" for name in values["domain"])
            for query in queries:
                answer = await client.get(one + query)
                assert answer.status_code < 500, (one, answer.text)
                answered += answer.status_code < 400
                head = repr(answer.headers.multi_items()).encode()
                told[f"GET {one}{query}"] = head + answer.content
        assert answered, f"no {path} was answered with what it is for"
    return told


# ---- the search ----------------------------------------------------------------------------------


@asynccontextmanager
async def place(db: str, tmp_path: Path, key: bytes):
    """A market with its console, one adapter, and a client."""
    provider = seed("provider")
    settings = fast(allow_private_hooks=True, registry="images.example")
    async with market(db, tmp_path, settings, hook_key=key, console=True) as (url, run):
        run.market.router = FakeRouter()
        run.market.own_registry = PaperRegistry()
        on_paper(run.market)
        adapter = FakeAdapter(url, provider, offer(provider, (gpu(0),), cluster_free_ms=300_000))
        async with httpx.AsyncClient(base_url=url, timeout=60) as client, working(adapter):
            yield client, run, adapter


def test_secrets_are_nowhere_in_clear(
    db: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    passphrase = "correct horse battery staple"
    keys = Keystore(tmp_path / "market" / "keys").unlock(passphrase)
    key = keys.create("webhooks").seed
    purse = Purse.create(tmp_path / "consumer", passphrase=passphrase)
    secrets: dict[str, bytes | str] = {
        "job secret": "hf_" + os.urandom(16).hex(),
        "purse": purse.signer.seed,
        "webhook key": key,
        "operator": keys.create("operator").seed,
        "passphrase": passphrase,
    }
    told: dict[str, bytes] = {}

    async def run() -> None:
        async with place(db, tmp_path, key) as (client, inside, adapter):
            await _use(client, inside, adapter, purse, secrets)
            told.update(await _read(client, secrets))
            told["audit"] = repr(await operator.audit_log(inside.market, 1000)).encode()
            places = {**told, **columns(db), **files(*folders_of(db, tmp_path))}
            assert search(places, secrets) == []
            _can_find(places, secrets)
            await inside.market.store.apply(Change(puts=[Setting("planted", PLANTED)]))
            found = [
                p for _, p in search({**columns(db), **files(*folders_of(db, tmp_path))},
                                     {"planted": PLANTED})
            ]  # fmt: skip
            assert "column settings.value" in found and any(p.startswith("file") for p in found)

    anyio.run(run)
    out, err = capfd.readouterr()
    assert "lease" in out + err
    logs = {"logs": (out + err).encode()}
    assert search(logs | files(*folders_of(db, tmp_path)), secrets) == []


def _can_find(places: dict[str, bytes], secrets: dict[str, bytes | str]) -> None:
    """All was created, and what is no secret is found by the very same search."""
    wanted = {"token", "API key", "idempotent key", "webhook", "rotated webhook", "session",
              "gang session", "job secret", "purse", "webhook key", "operator", "passphrase",
              "ticket", "spent ticket", "port token", "link", "registry token", "store pass"}  # fmt: skip
    wanted |= {f"service {one}" for one in ("ticket", "spent ticket", "port token", "link")}
    assert set(secrets) == wanted
    assert len({form for secret in secrets.values() for form in forms(secret)}) > 3 * len(secrets)
    account = next(p for p in places if p.startswith("column accounts.id"))
    public = places[account].strip().strip(b"'").decode()
    assert {p.split()[0] for _, p in search(places, {"account": public})} >= {
        "column",
        "file",
        "GET",
    }


async def _use(
    client: httpx.AsyncClient, inside: Any, adapter: FakeAdapter, purse: Purse,
    secrets: dict[str, bytes | str],
) -> None:  # fmt: skip
    """Everything that a secret has a part in: sign-in, keys, webhooks, a job with a secret."""
    await sign_in(client, purse.signer)
    secrets["token"] = client.headers["Authorization"].removeprefix("Bearer ")

    async def listed() -> Any:
        return (await client.get("/v1/offers")).json()["items"]

    await until(listed)
    once = {"Idempotency-Key": "one"}
    wide = {"name": "ci", "verbs": ["read", "jobs", "channels", "blobs", "webhooks", "keys"],
            "expires_at_ms": FAR, "budget": 90_000_000}  # fmt: skip
    secrets["API key"] = (await client.post("/v1/keys", json=wide)).json()["secret"]
    made = await client.post("/v1/keys", json=wide, headers=once)
    secrets["idempotent key"] = made.json()["secret"]
    again = await client.post("/v1/keys", json=wide, headers=once)
    assert (again.json()["id"], again.json()["secret"]) == (made.json()["id"], None)
    hook = {"url": "http://127.0.0.1:9/hook", "kinds": []}
    made = await client.post("/v1/webhooks", json=hook, headers={"Idempotency-Key": "two"})
    secrets["webhook"] = made.json()["secret"]
    path = f"/v1/webhooks/{made.json()['id']}/rotate"
    turned = (await client.post(path, headers={"Idempotency-Key": "three"})).json()
    secrets["rotated webhook"] = turned["secret"]
    assert turned["rotation"] == 2 and turned["secret"] != secrets["webhook"]
    await client.put(
        "/v1/blobs/" + "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )
    await _gang(client, purse, secrets)
    await _job(client, inside, adapter, purse, secrets)


async def _gang(client: httpx.AsyncClient, purse: Purse, secrets: dict[str, bytes | str]) -> None:
    """Two members that want the same secret, posted and stopped."""
    members = [purse.new_session(), purse.new_session()]
    secrets["gang session"] = members[0].seed
    gang = spec(
        secrets=("HF_TOKEN",), gang=Gang(2, spread=False, same_region=False),
        cluster=Cluster(2, mesh=False),
    )  # fmt: skip
    sent = {
        "spec": gang.to_wire(),
        "session_vks": [one.verify_key.hex() for one in members],
        "consumer_vkh": purse.signer.key_hash.hex(),
    }
    posted = await client.post("/v1/gangs", json=sent, headers={"Idempotency-Key": "six"})
    assert posted.status_code == 201, posted.text
    stopped = await client.post(f"/v1/gangs/{posted.json()['id']}/stop")
    assert stopped.status_code == 200, stopped.text
    for member in posted.json()["members"]:
        await state(client, member["id"], "ENDED")


async def _port(
    client: httpx.AsyncClient,
    port: str,
    secrets: dict[str, bytes | str],
    of: str = "",
    once: str = "seven",
) -> None:
    """Opened in a browser, to be opened, and shared."""
    for name in ("ticket", "spent ticket"):
        entrance = urlsplit((await client.post(f"{port}/tickets")).json()["url"])
        (secrets[of + name],) = parse_qs(entrance.query)["key"]
    async with httpx.AsyncClient(base_url=client.base_url) as browser:
        entered = await browser.get(
            f"{entrance.path}?{entrance.query}", headers={"Host": entrance.netloc}
        )
        assert entered.status_code == 303, entered.text
        secrets[f"{of}port token"] = entered.cookies["tally_app"]
    named = {"Idempotency-Key": once}
    link = (await client.post(f"{port}/links", json={}, headers=named)).json()
    (secrets[f"{of}link"],) = parse_qs(urlsplit(link["url"]).query)["key"]
    again = (await client.post(f"{port}/links", json={}, headers=named)).json()
    assert (again["id"], again["url"]) == (link["id"], None)


async def _job(
    client: httpx.AsyncClient, inside: Any, adapter: FakeAdapter, purse: Purse,
    secrets: dict[str, bytes | str],
) -> None:  # fmt: skip
    session, plain = purse.new_session(), str(secrets["job secret"]).encode()
    secrets["session"] = session.seed
    wanted = spec(secrets=("HF_TOKEN",), kind="service", ports=(Port(8888),))
    sent = body(wanted, session, purse.signer)
    posted = await client.post("/v1/jobs", json=sent, headers={"Idempotency-Key": "four"})
    assert posted.status_code == 201, posted.text
    view = await quoted(client, posted.json()["id"])
    quote = view["quote"]
    signed = {
        "session_signature": session.sign(bytes.fromhex(quote["terms"])).hex(),
        "channel_tx": "ab" * 32,
        "secrets": {"HF_TOKEN": seal_to(adapter.signer.verify_key, plain).hex()},
    }
    lease = quote["lease"]
    answer = await client.post(
        f"/v1/leases/{lease}/sign", json=signed, headers={"Idempotency-Key": "five"}
    )
    assert answer.status_code == 200, answer.text
    await until(lambda: adapter.leases[lease].signed)
    got = next(m for m in adapter.asked if isinstance(m, wire.LeaseSigned))
    assert unseal(adapter.signer, got.secrets["HF_TOKEN"]) == plain
    await adapter.progress(lease, "STARTED")
    await state(client, view["id"], "RUNNING")
    await _port(client, f"/v1/jobs/{view['id']}/ports/8888", secrets)
    service = "/v1/services/web"
    assert (await client.put(service, json={})).status_code == 200
    replica = await client.put(f"{service}/replicas/{view['id']}", json={"port": 8888})
    assert replica.status_code == 200, replica.text
    await _port(client, service, secrets, of="service ", once="eight")
    image = await client.get("/v1/registry/token", params={"scope": "registry:catalog:*"})
    secrets["registry token"] = image.json()["token"]
    await named(inside.market, purse.signer.key_hash.hex(), "run-1")
    lent = await client.post("/v1/stores/run-1/pass")
    secrets["store pass"] = lent.json()["token"]
    receipt: SignedReceipt | Any = await adapter.tick(lease)
    assert receipt.lease_owed
    await adapter.send(wire.LogChunk(lease, 0, "stdout", b"hello\n"))
    await adapter.send(wire.OutputReady(lease, "/app/out/x", "ab" * 32, 4))
    await adapter.finish(lease)

    async def told() -> Any:  # the webhook was tried, so its log line is written
        hooks = (await client.get("/v1/webhooks")).json()["items"]
        return hooks[0]["failures"]

    await until(told, 60)
    await client.post(f"/v1/jobs/{view['id']}/stop")
    await until(lambda: adapter.stops or adapter.leases[lease].finished)
    await adapter.progress(lease, "SETTLED", tx="cd" * 32)
    await state(client, view["id"], "ENDED")


async def _read(client: httpx.AsyncClient, secrets: dict[str, bytes | str]) -> dict[str, bytes]:
    """Every GET of the API, by token, by key, and once with the token in the address, and every
    page.
    """
    listed = (await client.get("/v1/jobs")).json()["items"]
    job = next(one["id"] for one in listed if not one["gang"])
    gang = next(one["gang"] for one in listed if one["gang"])
    view = (await client.get(f"/v1/jobs/{job}")).json()
    offers = (await client.get("/v1/offers")).json()["items"]
    hooks = (await client.get("/v1/webhooks")).json()["items"]
    hop = {"session_vk": seed("hop").verify_key.hex(), "tx": TX}
    assert (await client.post("/v1/router/hops", json=hop)).status_code == 201
    values = {
        "hook_id": [hook["id"] for hook in hooks],
        "job_id": [job],
        "gang_id": [gang],
        "port": [str(one["port"]) for one in view["ports"]],
        "domain": [str(urlsplit(one["url"]).hostname) for one in view["ports"]],
        "lease_id": view["leases"],
        "session_vk": [view["channel"], hop["session_vk"]],
        "offer_id": [o["id"] for o in offers],
        "provider": [o["provider"] for o in offers],
        "name": ["web"],
        "sha256": ["e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"],
    }
    paths = (await client.get("/openapi.json")).json()["paths"]
    gets = [p for p, ways in paths.items() if "get" in ways and not p.endswith("/outputs/{sha256}")]
    assert len(gets) > 20
    told = await every_get(client, [*gets, "/openapi.json"], values)
    token = client.headers.pop("Authorization")
    in_address = await client.get(f"/v1/jobs/{job}/events?token={secrets['token']}")
    assert in_address.status_code == 200
    told["GET by address"] = in_address.content
    pages = ["/", "/offers", "/offers/{offer_id}", "/providers", "/providers/{provider}", "/jobs",
             "/jobs/{job_id}", "/jobs/{job_id}/invoice", "/channels", "/jobs/new", "/sign-in",
             "/jobs/{job_id}/terminal", "/services", "/images", "/terminal-screen"]  # fmt: skip
    cookies = {"Cookie": f"tally_session={secrets['token']}"}
    async with httpx.AsyncClient(base_url=client.base_url, headers=cookies, timeout=60) as reader:
        told |= {f"{p} (page)": d for p, d in (await every_get(reader, pages, values)).items()}
    client.headers["Authorization"] = f"Bearer {secrets['API key']}"
    told |= {f"{p} (key)": d for p, d in (await every_get(client, gets, values)).items()}
    client.headers["Authorization"] = token
    for wrong in ("/v1/jobs/none", "/v1/jobs?state=X", f"/v1/jobs?token={secrets['API key']}"):
        answer = await client.get(wrong)
        told[f"GET {wrong[:20]}"] = answer.content
    return told


# ---- where the secrets come from -----------------------------------------------------------------


def test_a_secret_is_of_its_key_webhook_and_rotation(tmp_path: Path) -> None:
    async def run() -> None:
        async with market(f"sqlite:///{tmp_path}/m.db", tmp_path, hook_key=b"k" * 32) as (
            _,
            inside,
        ):
            one = inside.market
            hook = Hook("hook_1", "a", "https://example.org", [], 0)
            seen = {secret_of(one, hook), secret_of(one, Hook("hook_2", "a", "", [], 0)),
                    secret_of(one, Hook("hook_1", "a", "", [], 0, rotation=2))}  # fmt: skip
            assert len(seen) == 3
            # Pinned: a change of the derivation would silence every webhook that there is.
            assert secret_of(one, hook) == (
                "whsec_51905705dd16e4ce2bf511f9c08900ffa860cea4f0e1d779bfc71cb31ef1cd52"
            )
            one.hook_key = b"l" * 32
            assert secret_of(one, hook) not in seen
            with pytest.raises(HookKeyWrong):  # another keystore for the same database
                await check_key(one)
            assert await operator.rekey_hooks(one, one.hook_key) == 0
            await check_key(one)
            one.hook_key = b""
            with pytest.raises(HooksOff):
                secret_of(one, hook)

    anyio.run(run)


def test_without_a_key_there_are_no_webhooks_and_all_else_works(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            market(f"sqlite:///{tmp_path}/m.db", tmp_path, hook_key=b"") as (url, inside),
            httpx.AsyncClient(base_url=url, timeout=30) as client,
        ):
            await sign_in(client, seed("consumer"))
            hook = {"url": "https://example.org/x", "kinds": []}
            answer = await client.post("/v1/webhooks", json=hook)
            assert (answer.status_code, answer.json()["code"]) == (503, "WEBHOOKS_OFF")
            assert await inside.market.store.count(Hook) == 0
            assert (await client.get("/v1/jobs")).status_code == 200

    anyio.run(run)


def test_a_stored_secret_of_before_is_wiped_from_the_files(db: str, tmp_path: Path) -> None:
    """The migration: no column has it, no page that the database calls free, no log of writes."""
    from alembic import command

    engine = create_engine(normal_url(db))
    old = [f"whsec_{os.urandom(32).hex()}" for _ in range(40)]
    with engine.connect() as connection:
        command.upgrade(config(connection), "0001")
        connection.commit()
        if db.startswith("sqlite"):  # as most builds of it are; Debian's wipes by itself
            connection.execute(sa.text("PRAGMA secure_delete=OFF"))
        for number, secret in enumerate(old):
            connection.execute(
                sa.text(
                    "INSERT INTO webhooks (id, account, url, kinds, secret, created_ms, failures, version)"
                    " VALUES (:id, 'a', 'https://example.org', '[]', :secret, 1, 0, 0)"
                ),
                {"id": f"hook_{number}", "secret": secret},
            )
        connection.commit()
        # Of webhooks that were removed a secret may lie on as well.
        connection.execute(sa.text("DELETE FROM webhooks WHERE id LIKE '%1_'"))
        connection.commit()
    engine.dispose()
    data = list(folders_of(db, tmp_path))
    tables = _of_tables(files(*data))
    before = search(tables, {str(n): secret for n, secret in enumerate(old)})
    if db.startswith("sqlite"):  # PostgreSQL may not have written its pages yet
        assert len({name for name, _ in before}) == len(old)
    migrate(db)
    if not db.startswith("sqlite"):
        engine = create_engine(normal_url(db))
        with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            connection.execute(sa.text("CHECKPOINT"))
        engine.dispose()
    secrets: dict[str, bytes | str] = {str(n): secret for n, secret in enumerate(old)}
    assert search({**columns(db), **_of_tables(files(*data))}, secrets) == []
    engine = create_engine(normal_url(db))
    with engine.connect() as connection:
        kept = connection.execute(sa.text("SELECT id, rotation FROM webhooks")).all()
    engine.dispose()
    assert {tuple(row) for row in kept} == {(f"hook_{n}", 0) for n in range(40) if n // 10 != 1}


def _of_tables(found: dict[str, bytes]) -> dict[str, bytes]:
    """Without PostgreSQL's log of writes, which it recycles in its own time."""
    return {place: data for place, data in found.items() if "/pg_wal/" not in place}
