"""What a job is posted as: a job file, YAML or JSON, or the compact form that clients sign.

======================================  =======================================================
``application/yaml``, the file          what comes beside it, such as keys, is in the query
``application/json``, the file          the same; it is told by its ``version`` and ``image``
``application/json``, ``{"job": …}``    the file with what comes beside it
``application/json``, ``{"spec": …}``   the compact form, ``JobSpec.to_wire()``, likewise
======================================  =======================================================

A file of the API names what this market can take as it is: an image by its digest (or one that a
provider here announces), and files by the hash of blobs. All that is wrong is refused at once.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from marketplace.api.http.auth import Parts, spend
from marketplace.domain.errors import Malformed, NotFound, Refusal
from marketplace.domain.work import image_names
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.jobfile import (
    BadValue,
    Items,
    Node,
    Scalar,
    Section,
    Table,
    parse,
)
from marketplace.domain.work.jobfile.write import SHA256
from marketplace.domain.work.parts import FileIn
from marketplace.jobtext import tree
from marketplace.market.accounts.access import Caller
from marketplace.market.base.records import Blob

YAML: Final = "application/yaml"
_YAML: Final = (YAML, "application/x-yaml", "text/yaml", "text/x-yaml")
BYTES_A_REQUEST: Final = 8 * 1024  # a file costs more to read than other bodies: it counts as more
_LISTS: Final = frozenset({"channels", "spares", "session_vks"})
_NAMED: Final = re.compile(SHA256 + "[0-9a-f]{64}")
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Posted(Generic[M]):
    """A job, and what was said beside it."""

    spec: JobSpec
    beside: M


async def posted(request: Request, parts: Parts, who: Caller, beside: type[M]) -> Posted[M]:
    """What *request* posts; *beside* is what it must and may say beside the job.

    JobFileRefused with all ``problems``, Malformed, RateLimited, NotFound for a file that this
    account has not put.
    """
    body = await request.body()
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    value = None if kind in _YAML else _json(body)
    if value is None or not {"job", "spec"} & value.keys():
        given = _checked(beside, _query(request), "query")
        return Posted(await _file(request, parts, who), given)
    if "job" in value and "spec" in value:
        raise Malformed("a job is posted as `job` or as `spec`, not as both", field="job")
    given = _checked(beside, {k: v for k, v in value.items() if k not in ("job", "spec")}, "body")
    if "spec" in value:
        return Posted(JobSpec.from_wire(value["spec"]), given)
    return Posted(await _file(request, parts, who, "job"), given)


def _json(body: bytes) -> dict[str, Any]:
    try:
        value: object = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"the body is no JSON: {error}"[:200], field="body") from None
    if not isinstance(value, dict):
        raise Malformed("a job file, or an object with `job` or `spec`, is expected", field="body")
    return cast("dict[str, Any]", value)


def _query(request: Request) -> dict[str, Any]:
    """What is said beside a file, in the address."""
    told = request.query_params
    return {k: told.getlist(k) if k in _LISTS else v for k, v in told.items()}


def _checked(model: type[M], given: dict[str, Any], where: str) -> M:
    try:
        return model.model_validate(given)
    except ValidationError as error:
        found = [{**one, "loc": (where, *one["loc"])} for one in error.errors()]
        raise RequestValidationError(found) from None


async def _file(request: Request, parts: Parts, who: Caller, within: str = "") -> JobSpec:
    """The job of the file that the body is, or that it has under *within*."""
    body = await request.body()
    tokens = len(body) // BYTES_A_REQUEST
    if tokens:
        per_minute = parts.market.settings.requests_per_minute
        spend(request, parts, f"account:{who.account}", per_minute, tokens)
    root = tree(body)
    if within:
        root = next(node for key, node in cast(Table, root).entries if key.text == within)
    offers = [{"labels": one.labels} for _, one in parts.market.directory.offers()]
    job = parse(root, "job", also=partial(_takable, offers))
    named = [source.src.removeprefix(SHA256) for source in job.sources]
    sizes = {
        blob.sha256: blob.size
        for blob in await parts.market.store.find(Blob, account=who.account, sha256=named)
    }
    for name in named:
        if name not in sizes:
            raise NotFound(f"no blob {name}: PUT /v1/blobs/{name} first", field="files")
    spec = job.spec(
        [FileIn(s.dst, n, sizes[n], s.mode) for s, n in zip(job.sources, named, strict=True)]
    )
    if not spec.image:
        return spec
    if (digest := image_names.pinned(spec.image)) is not None:
        return spec if digest == spec.image else replace(spec, image=digest)
    return image_names.on_offers_with(spec, image_names.announced(spec.image, offers))


def _takable(offers: list[dict[str, Any]], top: Section) -> None:
    """Notes what only the consumer's own machine could resolve."""
    image, files = top.get("image"), top.get("files")
    if isinstance(image, Scalar) and (why := _unpinned(image.text, offers)):
        top.notes.add(BadValue, image, "image", why)
    for at, node in enumerate(files.items if isinstance(files, Items) else ()):
        src = _entry(node, "src")
        if src is not None and not (isinstance(src, Scalar) and _NAMED.fullmatch(src.text)):
            why = "the market reads no files of yours: PUT them as blobs, then src: sha256:…"
            top.notes.add(BadValue, src, f"files[{at}].src", why)


def _unpinned(image: str, offers: list[dict[str, Any]]) -> str:
    """Why it is not known what would run; empty if it is, or if this is no name at all."""
    try:
        if image_names.pinned(image) is not None:
            return ""
        if not image_names.is_local(image):
            return "a market asks no registry: write the digest, name@sha256:…"
        known = image_names.announced(image, offers)
    except Refusal:
        return ""  # noted already, as what it is
    return "" if known else "no provider here announces this local image"


def _entry(node: Node, key: str) -> Node | None:
    if not isinstance(node, Table):
        return None
    return next((value for name, value in node.entries if name.text == key), None)
