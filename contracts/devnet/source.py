"""Where the ledger's JavaScript lies, and how it gets there.

The devnet's ledger is Scalus (npm, Apache-2.0): one file, pinned by version and integrity in
``package-lock.json`` and by the digest below. It is never committed; ``npm ci`` puts it beside this
file in a checkout, or into the user's cache for an installed wheel.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_INSIDE = Path("node_modules/scalus/scalus.js")
_SHA256 = "7b8ebe5e92ee96ff6b6eed6fe2e99696b8b49fe4f6ef09e2a4b6985eb186470f"
_INSTALL_SECONDS = 180


class LedgerMissing(RuntimeError):
    """The ledger's JavaScript is not on this machine, or is not the pinned one."""

    code = "ledger_missing"
    remedy = "npm ci --prefix contracts/devnet, or: python -m contracts.devnet --fetch"

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}; run: {self.remedy}")


def cache_folder() -> Path:
    """Where an installed wheel keeps the ledger: $XDG_CACHE_HOME/tally/devnet or
    ~/.cache/tally/devnet.
    """
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "tally" / "devnet" / _SHA256[:16]


def ledger_source() -> str:
    """The ledger's JavaScript. Raises ``LedgerMissing`` when it is absent or differs from the
    pinned digest.
    """
    for folder in (_HERE, cache_folder()):
        path = folder / _INSIDE
        if path.exists():
            data = path.read_bytes()
            if hashlib.sha256(data).hexdigest() != _SHA256:
                raise LedgerMissing(f"{path} is not the pinned Scalus")
            return data.decode()
    raise LedgerMissing("the devnet's ledger (npm package scalus) is not installed")


def fetch_ledger() -> str:
    """Returns the ledger's JavaScript, installing it into the user's cache with npm if it is not
    here yet.

    Raises ``LedgerMissing`` when npm is absent or fails.
    """
    try:
        return ledger_source()
    except LedgerMissing:
        npm = shutil.which("npm")
        if npm is None:
            raise
    target = cache_folder()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(_HERE / name, scratch)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", scratch]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False
        )
        if done.returncode != 0:
            raise LedgerMissing(f"npm could not install it: {done.stderr.strip()[-300:]}")
        (target / _INSIDE).parent.mkdir(parents=True, exist_ok=True)
        # A rename is atomic: two processes may fetch at once and both end with the whole file.
        (Path(scratch) / _INSIDE).replace(target / _INSIDE)
    return ledger_source()
