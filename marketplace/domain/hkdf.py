"""Keys that follow from another, for one purpose each."""

from __future__ import annotations

import hashlib
import hmac


def hkdf_sha256(secret: bytes, info: bytes, length: int = 32) -> bytes:
    """HKDF with an empty salt (RFC 5869); *length* at most 32 here."""
    pseudo_random = hmac.new(bytes(32), secret, hashlib.sha256).digest()
    return hmac.new(pseudo_random, info + b"\x01", hashlib.sha256).digest()[:length]
