"""Keys of a block producer, told by the forms in which Cardano's tools write them.

Whoever owns a host reads what runs on it, so a key that makes blocks, and the certificate that
goes with it, leaves its owner's machine for no job: not as a file, a variable, a secret or an
argument. This guards against a mistake, not against a will: what is compressed or encrypted passes.

Forms: the text envelope of cardano-cli (``type``, ``cborHex``; as JSON, YAML or inside a string,
several of them in a file of bulk credentials), its CBOR alone (KES 608 bytes, VRF 64, operational
certificate, its counter, Byron 128), the bech32 of CIP-5, a KES key's hex anywhere, and what as a
whole is the hex or base64 of one of these. A cold key's CBOR without its envelope is any 32 bytes,
and is not told.
"""

from __future__ import annotations

import base64
import binascii
import re
from bisect import bisect
from typing import Final

from marketplace.domain.errors import Refusal

MOST_WHOLE: Final = 64 * 1024  # what is looked at as one thing: bulk credentials of a dozen pools
MOST_FILE: Final = 1024 * 1024
"""Of many files, as on a volume, those that are larger are not looked at."""
_OVERLAP: Final = 8 * 1024  # longer than an envelope: a KES key has 1,222 digits
_HINTS: Final = (b"SigningKey", b"NodeOperationalCertificate", b"_sk1", b"_xsk1", b"590260")

_TYPE: Final = re.compile(
    rb"""\btype["']?\s*[:=]\s*["']?(?:(?P<kes>K(?:es|ES)SigningKey)|(?P<vrf>V(?:rf|RF)SigningKey)"""
    rb"""|(?P<cold>StakePool(?:Extended)?SigningKey)|(?P<bls>BlsSigningKey)"""
    rb"""|(?P<genesis>Genesis(?:Delegate)?(?:Extended|Vrf)?SigningKey)"""
    rb"""|(?P<counter>NodeOperationalCertificateIssueCounter)"""
    rb"""|(?P<certificate>NodeOperationalCertificate))"""
)
_CONTENT: Final = re.compile(rb"""\bcborHex["']?\s*[:=]\s*["']?[0-9a-fA-F]{20}""")
_BECH32: Final = rb"1[02-9ac-hj-np-z]{58}"  # 32 bytes or more, with their checksum
_WORD: Final = re.compile(
    rb"\b(?:(?P<kes>kes_sk" + _BECH32 + rb"|590260[0-9a-fA-F]{1216})"
    rb"|(?P<vrf>vrf_sk" + _BECH32 + rb")|(?P<cold>pool_x?sk" + _BECH32 + rb"))"
)
_UINT: Final = rb"(?:[\x00-\x17]|\x18.|\x19..|\x1a.{4}|\x1b.{8})"
_BYTES_32: Final = rb"\x58\x20.{32}"
_CBOR: Final = re.compile(
    rb"(?P<kes>\x59\x02\x60.{608})|(?P<vrf>\x58\x40.{64})|(?P<byron>\x58\x80.{128})"
    rb"|(?P<counter>\x82" + _UINT + _BYTES_32 + rb")"
    rb"|(?P<certificate>\x82\x84"
    + _BYTES_32
    + _UINT
    + _UINT
    + rb"\x58\x40.{64}"
    + _BYTES_32
    + rb")",
    re.DOTALL,
)
_NAMES: Final = {
    "kes": "a KES signing key",
    "vrf": "a VRF signing key",
    "cold": "a pool's cold key",
    "bls": "a BLS signing key",
    "genesis": "a genesis key",
    "byron": "a Byron signing key",
    "counter": "an operational certificate's counter",
    "certificate": "an operational certificate",
}


class PoolKeyRefused(Refusal):
    """What a job takes along holds a key of a block producer."""

    code = "POOL_KEY_REFUSED"
    remedy = (
        "whoever owns the host could make your pool's blocks with it: keep it on your block "
        "producer; a relay needs no key"
    )


def refuse_in(data: bytes | str, where: str) -> None:
    """:class:`PoolKeyRefused` if *data*, named *where* for people, holds one."""
    look = Look()
    look.at(data.encode() if isinstance(data, str) else data)
    look.refuse(where)


class Look:
    """A look at bytes that come in parts, of any length, in bounded memory, and in time that grows
    with the bytes alone: whoever sends them also chooses the parts.
    """

    def __init__(self) -> None:
        self._head = bytearray()
        self._unread = bytearray()
        self._size = 0
        self._found = ""

    def at(self, part: bytes) -> None:
        """The next part."""
        self._size += len(part)
        self._head += part[: MOST_WHOLE - len(self._head)]
        self._unread += part
        if len(self._unread) >= MOST_WHOLE:
            self._read()

    def refuse(self, where: str) -> None:
        """After the last part: :class:`PoolKeyRefused` if there was one."""
        self._read()
        whole = bytes(self._head) if self._size <= MOST_WHOLE else b""
        if found := self._found or _alone(whole) or _alone(_decoded(whole)):
            raise PoolKeyRefused(f"{where} holds {_NAMES[found]}", where=where, holds=found)

    def _read(self) -> None:
        self._found = self._found or _written(bytes(self._unread))
        del self._unread[:-_OVERLAP]  # an envelope may go on in the next part


def _written(text: bytes) -> str:
    """Which of :data:`_NAMES` stands in *text* as an envelope or as one word; empty: none."""
    if not any(hint in text for hint in _HINTS):
        return ""
    text = text.replace(b"\\n", b"\n").replace(b"\\", b"")  # in a string of another document
    contents = [found.start() for found in _CONTENT.finditer(text)]
    for named in _TYPE.finditer(text):
        after = bisect(contents, named.start())  # the two that are nearest, before and behind
        if any(
            abs(at - named.start()) < _OVERLAP for at in contents[max(0, after - 1) : after + 1]
        ):
            return str(named.lastgroup)
    named = _WORD.search(text)
    return str(named.lastgroup) if named else ""


def _alone(data: bytes) -> str:
    """Which of :data:`_NAMES` *data* is as CBOR, or holds as text."""
    named = _CBOR.fullmatch(data)
    return str(named.lastgroup) if named else _written(data)


def _decoded(data: bytes) -> bytes:
    """What *data* is the hex or base64 of; empty: neither."""
    text = b"".join(data.split())
    try:
        return bytes.fromhex(text.decode("ascii"))
    except ValueError:
        pass
    try:
        text = text.translate(_URL_SAFE).rstrip(b"=")
        return base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except (ValueError, binascii.Error):
        return b""


_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")
