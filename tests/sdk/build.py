"""The TypeScript client as a package of its own: compiled by its own configuration, away from the
checkout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.requires import need_node, need_sdk

ROOT: Final = Path(__file__).parents[2]
HERE: Final = Path(__file__).parent
BUILT_S: Final = 240


def ran(
    *words: object, cwd: Path, env: dict[str, str] | None = None, patience_s: int = BUILT_S
) -> str:
    """What a command printed; it must succeed."""
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env={**os.environ, **(env or {})},
        capture_output=True, text=True, timeout=patience_s, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return done.stdout


def types(sdk: Path) -> None:
    """The API's types, made of the pinned document as ``npm run generate`` does; in one step, for
    two tests may do so at once.
    """
    made = sdk / "generated" / "api.ts"
    made.parent.mkdir(exist_ok=True)
    fresh = made.with_name(f"api-{os.getpid()}.ts")
    document = ROOT / "tests" / "golden" / "openapi.json"
    ran(sdk / "node_modules/.bin/openapi-typescript", document, "--output", fresh, cwd=sdk)
    os.replace(fresh, made)


def built(folder: Path) -> Path:
    """The package in *folder*, compiled strictly: what ``npm run build`` makes, and its name."""
    sdk = need_sdk()
    types(sdk)
    package = folder / "sdk"
    package.mkdir()
    ran(sdk / "node_modules/.bin/tsc", "--outDir", package / "dist", cwd=sdk)
    shutil.copy(sdk / "package.json", package)
    (package / "node_modules").symlink_to(sdk / "node_modules")
    return package


def environment(package: Path) -> dict[str, str]:
    """For programs of ``tests/sdk``: where the built client is."""
    return {"TALLY_SDK": (package / "dist/sdk/src/index.js").as_uri(), "NODE_NO_WARNINGS": "1"}


def node(*words: object, package: Path, cwd: Path, **env: str) -> str:
    """What a program of Node printed."""
    return ran(need_node(), *words, cwd=cwd, env={**environment(package), **env})
