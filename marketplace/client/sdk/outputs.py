"""What a job gave back: whose it is, and how it comes onto a disk."""

from __future__ import annotations

import hashlib
import os
import posixpath
import tempfile
from collections.abc import AsyncIterator, Collection
from pathlib import Path

import anyio.to_thread

from marketplace.client.net.answers import OutputAnswer
from marketplace.domain.errors import Refusal
from marketplace.domain.money.evidence import Evidence
from marketplace.domain.money.route.terms import either
from marketplace.domain.work.output import OutputUnproven, SignedOutput, terms_hash

Provider = tuple[bytes, bytes]
"""A lease's, by its terms: their hash, and the key that signs what it gives back."""


class OutputRefused(Refusal):
    """An output that does not hash to its name, or would lie outside the folder."""

    code = "OUTPUT_REFUSED"
    remedy = "nothing was written; ask the provider's market for it again"


def agreed_providers(evidence: Evidence, keys: Collection[bytes]) -> dict[str, Provider]:
    """Of each lease of the *evidence*'s job on terms that one of *keys*, a purse's session keys,
    agreed to: by its id.
    """
    providers: dict[str, Provider] = {}
    for lease in evidence.leases:
        signed = either(lease.signed)
        try:
            terms = signed.verify()
        except Refusal:
            continue  # it proves nothing
        if terms.session_vk in keys and terms.job == evidence.job:
            providers[terms.lease] = terms_hash(signed.body), terms.adapter_vk
    return providers


def prove(items: Collection[OutputAnswer], evidence: Evidence, keys: Collection[bytes]) -> None:
    """:class:`OutputUnproven` unless each of *items* was signed by the provider of a lease of the
    *evidence*'s job, on terms that one of *keys*, a purse's session keys, agreed to. What the
    market says beside that counts for nothing.
    """
    providers = agreed_providers(evidence, keys)
    for item in items:
        signature, provider = item.get("signature", ""), providers.get(item.get("lease", ""))
        path = item["path"][:200]
        if provider is None or not signature:
            why = "nobody signed it" if provider else "no lease that this purse agreed to is its"
            raise OutputUnproven(f"output {path}: {why}")
        try:
            raw = bytes.fromhex(signature)
        except ValueError as error:
            raise OutputUnproven(f"output {path}: its signature is not hex") from error
        terms, key = provider
        SignedOutput(terms, item["path"], item["sha256"], item["size"], raw).verify(key)


async def written(parts: AsyncIterator[bytes], item: OutputAnswer, folder: Path) -> Path:
    """The bytes of *item* under *folder*, in place once they are what they are said to be; a file
    that is there is replaced. :class:`OutputRefused` leaves nothing behind.
    """
    path, digest, size = safe_path(folder, item["path"]), hashlib.sha256(), 0
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".tally-")
    try:
        with os.fdopen(handle, "wb") as file:
            async for part in parts:
                size += len(part)
                if size > item["size"]:
                    break
                digest.update(part)
                await anyio.to_thread.run_sync(file.write, part)
        if size != item["size"] or digest.hexdigest() != item["sha256"]:
            raise OutputRefused(f"output {item['path']} does not hash to {item['sha256']}")
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    return path


def safe_path(folder: Path, name: str) -> Path:
    """Where output *name* goes below *folder*; :class:`OutputRefused` for one that would leave
    it.
    """
    inner = name.removeprefix("/workspace/").lstrip("/")
    normal = posixpath.normpath(inner) if inner else ""
    if not normal or normal.startswith("..") or normal == "." or "\x00" in normal:
        raise OutputRefused(f"output {name[:100]!r} does not lie inside the folder")
    root = folder.resolve()
    path = root / normal
    if not path.parent.resolve().is_relative_to(root):
        raise OutputRefused(f"output {name[:100]!r} leads out of the folder by a link")
    return path
