"""Tokens of the market's registry: JSON Web Tokens as Distribution reads them (its specification
"Token Authentication Implementation"), signed with ES256 by a key of the market's.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from marketplace.domain.errors import Unauthenticated
from marketplace.domain.hkdf import hkdf_sha256

LIVES_S: Final = 300
ISSUER: Final = "tally"
_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of P-256
_YEARS: Final = 20


@dataclass(frozen=True)
class Scope:
    """*actions* (pull, push, delete; of a namespace: list) on *name*, a repository or a
    namespace as *kind* says.
    """

    kind: str
    name: str
    actions: frozenset[str]

    def wire(self) -> dict[str, Any]:
        """As a token says it."""
        return {"type": self.kind, "name": self.name, "actions": sorted(self.actions)}


def scopes_of(asked: Iterable[str]) -> list[Scope]:
    """What *asked* (``repository:NAME:pull,push``, several apart by spaces) says; what is none is
    left out: nobody gets what he did not ask for in a way that we read.
    """
    found: list[Scope] = []
    for text in (one for part in asked for one in part.split(" ")):
        kind, colon, rest = text.partition(":")
        name, second, actions = rest.rpartition(":")
        if colon and second and kind and name:
            found.append(Scope(kind, name, frozenset(actions.split(",")) - {""}))
    return found


class TokenKey:
    """The market's key for tokens of its registry. *secret*: 32 bytes that it is derived from."""

    def __init__(self, secret: bytes) -> None:
        number = int.from_bytes(hkdf_sha256(secret, b"tally/registry-tokens/v1", 48), "big")
        self._key = ec.derive_private_key(number % (_ORDER - 1) + 1, ec.SECP256R1())
        self.certificate = _certificate(self._key)
        self._id = _key_id(self._key.public_key())

    def token(
        self, service: str, subject: str, scopes: Sequence[Scope], now_s: int, quota: int = 0
    ) -> str:
        """For *scopes* at *service*, from now on for :data:`LIVES_S`. *quota*: bytes that the
        namespace of *subject* may take.
        """
        claims = {
            "iss": ISSUER, "sub": subject, "aud": service, "iat": now_s, "nbf": now_s - 10,
            "exp": now_s + LIVES_S, "access": [one.wire() for one in scopes], "quota": quota,
        }  # fmt: skip
        return jwt.encode(claims, self._key, "ES256", headers={"kid": self._id})


class TokenReader:
    """Reads the tokens of the market whose *certificate* (PEM) this is, for *service*."""

    def __init__(self, certificate: str, service: str) -> None:
        key = x509.load_pem_x509_certificate(certificate.encode()).public_key()
        self._key, self._service = cast(ec.EllipticCurvePublicKey, key), service

    def read(self, header: str) -> tuple[list[Scope], int]:
        """What an ``Authorization`` header's token allows, and the quota that it states;
        Unauthenticated.
        """
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthenticated("this needs a token of the market")
        try:
            claims: dict[str, Any] = jwt.decode(
                token.strip(), self._key, ["ES256"],
                audience=self._service, issuer=ISSUER, leeway=10,
            )  # fmt: skip
            rows = cast("list[dict[str, Any]]", claims["access"])
            found = [
                Scope(str(r["type"]), str(r["name"]), frozenset(map(str, r["actions"])))
                for r in rows
            ]
            return found, int(claims.get("quota", 0))
        except (jwt.PyJWTError, KeyError, TypeError, ValueError) as error:
            raise Unauthenticated("the token is not this market's, or too old") from error

    def quota(self, header: str, kind: str, name: str, action: str) -> int | None:
        """The quota that the token in *header* states, if it allows *action* on *name*; else
        None.
        """
        try:
            found, quota = self.read(header)
        except Unauthenticated:
            return None
        for one in found:
            if one.kind == kind and one.name == name and action in one.actions:
                return quota
        return None


def _key_id(key: ec.EllipticCurvePublicKey) -> str:
    """As Distribution names a key (libtrust): the first 240 bits of its SHA-256 in base 32."""
    raw = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    text = base64.b32encode(hashlib.sha256(raw).digest()[:30]).decode()
    return ":".join(text[at : at + 4] for at in range(0, len(text), 4))


def _certificate(key: ec.EllipticCurvePrivateKey) -> str:
    """Self-signed, PEM: the form in which Distribution takes a key that it shall trust."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Tally market")])
    begun = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(begun)
        .not_valid_after(begun + datetime.timedelta(days=365 * _YEARS))
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()
