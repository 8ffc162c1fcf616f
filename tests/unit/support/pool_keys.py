"""Keys of a block producer in each form that Cardano's tools write, and what only looks like one."""

from __future__ import annotations

import base64
import io
import json
import tarfile
from typing import Final

import cbor2
from pycardano.crypto.bech32 import Encoding, bech32_encode, convertbits

_RAW: Final = {
    "KesSigningKey_ed25519_kes_2^6": b"\x11" * 608,
    "VrfSigningKey_PraosVRF": b"\x12" * 64,
    "StakePoolSigningKey_ed25519": b"\x13" * 32,
    "StakePoolExtendedSigningKey_ed25519_bip32": b"\x14" * 128,
    "GenesisSigningKey_ed25519": b"\x15" * 32,
    "GenesisExtendedSigningKey_ed25519_bip32": b"\x16" * 128,
    "GenesisDelegateSigningKey_ed25519": b"\x17" * 32,
    "GenesisDelegateExtendedSigningKey_ed25519_bip32": b"\x18" * 128,
    "BlsSigningKey_bls12-381-BLS-Signature-Mininimal-Signature-Size": b"\x19" * 32,
}
_HOLDS: Final = {
    "Kes": "a KES signing key",
    "Vrf": "a VRF signing key",
    "Sta": "a pool's cold key",
    "Gen": "a genesis key",
    "Bls": "a BLS signing key",
}
CERTIFICATE: Final = cbor2.dumps([[b"\x21" * 32, 7, 912, b"\x22" * 64], b"\x23" * 32])
COUNTER: Final = cbor2.dumps([300, b"\x24" * 32])
HOT, VRF = "KesSigningKey_ed25519_kes_2^6", "VrfSigningKey_PraosVRF"


def envelope(kind: str, content: bytes) -> str:
    """As cardano-cli writes it."""
    fields = {"type": kind, "description": "", "cborHex": content.hex()}
    return json.dumps(fields, indent=4) + "\n"


def signing(kind: str) -> str:
    return envelope(kind, cbor2.dumps(_RAW[kind]))


def bech32(prefix: str, raw: bytes) -> str:
    words = convertbits(raw, 8, 5)
    assert words is not None
    return bech32_encode(prefix, words, Encoding.BECH32)


def archive(content: bytes) -> bytes:
    """A tar with *content* in it, after a page of something else."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in (("notes", b"n" * 70_000), ("kes.skey", content)):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def refused() -> list[tuple[str, bytes, str]]:
    """Names for people, bytes, and what they hold."""
    kes, cert = signing(HOT), envelope("NodeOperationalCertificate", CERTIFICATE)
    hot = cbor2.dumps(_RAW[HOT])
    a_kes, a_cert = "a KES signing key", "an operational certificate"
    texts = [
        *((kind, signing(kind), _HOLDS[kind[:3]]) for kind in _RAW),
        ("older tools' KES", signing(HOT).replace("KesS", "KESS"), a_kes),
        ("certificate", cert, a_cert),
        ("counter", envelope("NodeOperationalCertificateIssueCounter", COUNTER), f"{a_cert}'s counter"),
        ("bulk credentials", json.dumps([[json.loads(cert), json.loads(signing(VRF)), json.loads(kes)]]), a_cert),
        ("an envelope in YAML", f"type: {HOT}\ncborHex: {hot.hex()}\n", a_kes),
        ("an envelope in a string", json.dumps({"KES_SKEY": kes}), a_kes),
        ("an envelope the other way round", json.dumps({"cborHex": hot.hex(), "type": HOT}), a_kes),
        ("base64 of an envelope", base64.encodebytes(kes.encode()).decode(), a_kes),
        ("base64 for addresses", base64.urlsafe_b64encode(b"\xff\xfe " + kes.encode()).decode().rstrip("="), a_kes),
        ("hex of a KES key in a line", f"echo {hot.hex()} | xxd -r -p > kes.skey", a_kes),
        ("hex of a VRF key", cbor2.dumps(_RAW[VRF]).hex() + "\n", "a VRF signing key"),
        ("hex of a certificate", CERTIFICATE.hex().upper(), a_cert),
        ("bech32 of a KES key", f"key={bech32('kes_sk', _RAW[HOT])}", a_kes),
        ("bech32 of a VRF key", bech32("vrf_sk", _RAW[VRF]), "a VRF signing key"),
        ("bech32 of a cold key", bech32("pool_sk", b"\x31" * 32), "a pool's cold key"),
        ("bech32 of a derived cold key", bech32("pool_xsk", b"\x32" * 96), "a pool's cold key"),
    ]  # fmt: skip
    return [
        *((name, text.encode(), holds) for name, text, holds in texts),
        ("KES as CBOR", hot, a_kes),
        ("VRF as CBOR", cbor2.dumps(_RAW[VRF]), "a VRF signing key"),
        ("Byron as CBOR", cbor2.dumps(b"\x33" * 128), "a Byron signing key"),
        ("certificate as CBOR", CERTIFICATE, a_cert),
        ("counter as CBOR", COUNTER, f"{a_cert}'s counter"),
        ("base64 of CBOR", base64.b64encode(CERTIFICATE), a_cert),
        ("an envelope in an archive", archive(kes.encode()), a_kes),
    ]


def taken() -> list[tuple[str, bytes]]:
    """What a job may take along."""
    public = {
        "KesVerificationKey_ed25519_kes_2^6": 32,
        "VrfVerificationKey_PraosVRF": 32,
        "StakePoolVerificationKey_ed25519": 32,
        "PaymentSigningKeyShelley_ed25519": 32,
        "StakeSigningKeyShelley_ed25519": 32,
        "GenesisUTxOSigningKey_ed25519": 32,
    }
    return [
        *((kind, envelope(kind, cbor2.dumps(b"\x41" * size)).encode()) for kind, size in public.items()),
        ("nothing", b""),
        ("a script that names the types", b'case "$type" in KesSigningKey*) role=kes ;; VrfSigningKey*) role=vrf ;; esac'),
        ("a page about them", b'"type": "KesSigningKey_ed25519_kes_2^6", "cborHex": "..."'),
        ("a pool's id", bech32("pool", b"\x42" * 28).encode()),
        ("a public VRF key", bech32("vrf_vk", b"\x43" * 32).encode()),
        ("a hash as CBOR", cbor2.dumps(b"\x44" * 32)),
        ("a certificate that is cut", CERTIFICATE[:-1]),
        ("a KES key's length, and more", cbor2.dumps(b"\x45" * 608) + b"\x00"),
        ("not text", bytes(range(256)) * 300),
    ]  # fmt: skip
