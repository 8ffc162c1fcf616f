"""Whether an image was signed by somebody whom the host's owner trusts.

Cosign's format (github.com/sigstore/cosign, specs/SIGNATURE_SPEC.md): beside the image lies a
manifest with the tag ``sha256-DIGEST.sig``, whose layers are payloads ("simple signing") that name
the image's digest, each with an ECDSA signature (P-256, SHA-256, DER in base64) in an annotation.
What the registry says is not believed: the payload is what its digest names, and the signature is
over its bytes. Certificates and transparency logs are not looked at: the owner names the keys.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import httpx
import structlog
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from adapter.core.workload import ImageRefused
from adapter.runtime.docker.market_images import Login
from adapter.runtime.docker.pull import not_had
from adapter.runtime.docker.registry import ImageForeign, Registry, owners_login
from marketplace.domain.errors import Refusal

_log = structlog.get_logger("adapter.images")
PAYLOAD: Final = "application/vnd.dev.cosign.simplesigning.v1+json"
SIGNATURE: Final = "dev.cosignproject.cosign/signature"
TYPE: Final = "cosign container image signature"
MOST_SIGNATURES: Final = 16  # of one image, of which each is a request to its registry
MOST_PAYLOAD: Final = 64 << 10
_SCHEME: Final = ec.ECDSA(hashes.SHA256())

Key = ec.EllipticCurvePublicKey


class ImageUnsigned(ImageRefused):
    """Nobody signed the image whom the host's owner trusts."""

    code = "IMAGE_UNSIGNED"
    remedy = (
        "sign it by `cosign sign --key KEY --new-bundle-format=false IMAGE@DIGEST`, with a key that"
        " the provider trusts; or ask for another provider"
    )


class KeyUnusable(Refusal):
    """A file of ``limits.signed_by`` is no public key of cosign's."""

    code = "SIGNING_KEY_UNUSABLE"
    remedy = "name the file that `cosign generate-key-pair` calls cosign.pub"


def read_keys(files: Sequence[Path]) -> tuple[Key, ...]:
    """The public keys in *files*: PEM, ECDSA over P-256. KeyUnusable."""
    return tuple(_read_key(file) for file in files)


def _read_key(file: Path) -> Key:
    try:
        key = load_pem_public_key(file.expanduser().read_bytes())
    except (OSError, ValueError) as error:
        raise KeyUnusable(f"{file}: {error}") from error
    if not isinstance(key, Key) or not isinstance(key.curve, ec.SECP256R1):
        raise KeyUnusable(f"{file}: a key over the curve P-256 is needed")
    return key


class Signatures:
    """Those of *keys*. What was found good is remembered until this process ends: an image that is
    on the host already is started also while its registry is away.
    """

    def __init__(self, keys: Sequence[Key]) -> None:
        self._keys = tuple(keys)
        self._good: set[str] = set()

    def require(self, client: Any, image: str, login: Login | None) -> None:
        """:class:`ImageUnsigned` unless one of the keys signed *image* (by digest);
        :class:`ImageRefused` if its registry cannot be asked. Nothing where there are no keys, or
        for what is named by a host's own id: such an image is the owner's. Blocks.
        """
        repository, _, digest = image.partition("@")
        if not self._keys or not digest or digest in self._good:
            return
        info = cast("Mapping[str, Any]", client.info())
        try:
            with Registry(info, repository, login or owners_login(client, repository)) as registry:
                signed = any(self._by_us(payload, signature, digest) for payload, signature in
                    _signatures(registry, digest))  # fmt: skip
        except (httpx.HTTPError, httpx.InvalidURL, OSError, LookupError, ValueError) as error:
            _log.warning("signatures not read", image=image, cause=str(error)[:300])
            raise not_had(image) from None
        except ImageForeign as no:
            raise ImageUnsigned(f"{image}: {no.message}", image=image) from None
        if not signed:
            raise ImageUnsigned(f"{image} is signed by no key that this provider trusts")
        self._good.add(digest)

    def _by_us(self, payload: bytes, signature: bytes, digest: str) -> bool:
        return any(_verifies(key, payload, signature) for key in self._keys) and (
            _names(payload) == digest
        )


def _signatures(registry: Registry, digest: str) -> list[tuple[bytes, bytes]]:
    """(payload, signature) of each that lies beside the image."""
    raw = registry.tagged(f"{digest.replace(':', '-')}.sig")
    if raw is None:
        return []
    found: list[tuple[bytes, bytes]] = []
    for row in _rows(json.loads(raw))[:MOST_SIGNATURES]:
        try:
            annotations = cast("dict[str, str]", row["annotations"])
            signature = base64.b64decode(annotations[SIGNATURE], validate=True)
            if row["mediaType"] != PAYLOAD or int(row["size"]) > MOST_PAYLOAD:
                continue
            found.append((registry.blob(str(row["digest"])), signature))
        except (KeyError, TypeError, ValueError, binascii.Error):
            continue  # one that cannot be read proves nothing; another may
    return found


def _rows(document: Any) -> list[dict[str, Any]]:
    layers = cast("dict[str, Any]", document).get("layers") if isinstance(document, dict) else None
    rows = cast("list[Any]", layers) if isinstance(layers, list) else []
    return [cast("dict[str, Any]", row) for row in rows if isinstance(row, dict)]


def _verifies(key: Key, payload: bytes, signature: bytes) -> bool:
    try:
        key.verify(signature, payload, _SCHEME)
    except InvalidSignature:
        return False
    return True


def _names(payload: bytes) -> str:
    """The digest of the image that *payload* is about; "" for anything else."""
    try:
        critical = json.loads(payload)["critical"]
        if critical["type"] != TYPE:
            return ""
        image = cast("dict[str, Any]", critical["image"])
        # The specification writes its name with a capital, the program without.
        return str(image.get("docker-manifest-digest") or image["Docker-manifest-digest"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
