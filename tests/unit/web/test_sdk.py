"""The TypeScript client compiles strictly, answers the golden vectors, and shares a purse's folder
with the command line.
"""

from __future__ import annotations

import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from marketplace.client.wallet.purse import Purse
from marketplace.keystore import Keystore, KeystoreDamaged
from tests.sdk.build import HERE, ROOT, built, node, ran

PASSPHRASE = "correct horse"
SHOW = """
const { Purse } = await import(process.env.TALLY_SDK);
const [how, home, passphrase, given] = process.argv.slice(1);
const purse = await Purse[how]({ home, passphrase });
const session = given ?? Buffer.from((await purse.newSession()).verifyKey).toString("hex");
await purse.session(session);
console.log(JSON.stringify([purse.address(42), purse.address(764824073), purse.account, session]));
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("sdk"))


@pytest.mark.parametrize("program", ["verify.test.mjs", "purse.test.mjs", "job.test.mjs"])
def test_what_is_tested_in_node(package: Path, program: str) -> None:
    said = node("--test", HERE / program, package=package, cwd=HERE)
    assert "# fail 0" in said and "# pass 0" not in said, said


def _shown(package: Path, how: str, home: Path, *more: str) -> list[str]:
    words = ("--input-type=module", "-e", SHOW, how, home, PASSPHRASE, *more)
    return json.loads(node(*words, package=package, cwd=home.parent))


def _same(purse: Purse, shown: list[str]) -> None:
    addresses = [purse.address(mainnet=mainnet) for mainnet in (False, True)]
    assert shown[:3] == [*addresses, purse.signer.key_hash.hex()]
    assert purse.session(bytes.fromhex(shown[3])).verify_key.hex() == shown[3]


def test_each_opens_the_purse_that_the_other_made(package: Path, tmp_path: Path) -> None:
    mine = Purse.create(tmp_path / "python", passphrase=PASSPHRASE)
    known = mine.new_session().verify_key.hex()
    _same(mine, _shown(package, "load", mine.home, known))
    _same(mine, _shown(package, "load", mine.home))  # and a session key that Node made in it
    shown = _shown(package, "create", tmp_path / "node")
    _same(Purse.load(tmp_path / "node", passphrase=PASSPHRASE), shown)


def test_a_changed_passphrase_is_the_one_that_opens(package: Path, tmp_path: Path) -> None:
    mine = Purse.create(tmp_path / "home", passphrase="another phrase")
    Keystore(mine.home / "keys").change_passphrase("another phrase", PASSPHRASE)
    _same(mine, _shown(package, "load", mine.home))


def test_what_node_wrote_and_somebody_bent_is_damaged(package: Path, tmp_path: Path) -> None:
    _shown(package, "create", tmp_path / "home")
    path = tmp_path / "home" / "keys" / "purse.key"
    row = json.loads(path.read_text())
    path.write_text(json.dumps({**row, "box": row["box"][:-8] + "AAAAAAA="}))
    with pytest.raises(KeystoreDamaged):
        _ = Purse.load(tmp_path / "home", passphrase=PASSPHRASE).signer


def test_it_is_a_package_that_needs_no_checkout(package: Path, tmp_path: Path) -> None:
    """What is packed holds the shared modules and the types, and no test or source map."""
    packed = ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", str(tmp_path)]
    subprocess.run(packed, cwd=package, check=True, capture_output=True, timeout=120)
    [file] = list(tmp_path.glob("*.tgz"))
    with tarfile.open(file) as inside:
        names = set(inside.getnames())
    for name in ("sdk/src/index.d.ts", "sdk/generated/api.d.ts", "assets/money/payer.js"):
        assert f"package/dist/{name}" in names
    assert not [name for name in names if "test" in name or name.endswith(".map")]


def test_what_it_shares_is_the_consoles_and_speaks_of_no_page(package: Path) -> None:
    """Every module that is not the client's own is compiled from the one that the browser loads."""
    assets = package / "dist" / "assets"
    shared = [file.relative_to(assets) for file in assets.rglob("*.js")]
    assert len(shared) > 30
    for name in shared:
        assert (ROOT / "web" / "assets" / name).is_file(), name
        text = (assets / name).read_text()
        assert not any(word in text for word in ("localStorage", "document.", "indexedDB")), name
    assert not [name for name in shared if name.parts[0] in ("pages", "ui")]


@pytest.mark.parametrize("page", ["web/sdk/README.md", "docs/developer.md"])
def test_what_the_page_shows_compiles(package: Path, tmp_path: Path, page: str) -> None:
    code = (ROOT / page).read_text().split("```ts\n")[1].split("```")[0]
    (tmp_path / "page.ts").write_text(code)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "node_modules" / "@tally").mkdir(parents=True)
    (tmp_path / "node_modules" / "@tally" / "sdk").symlink_to(package)
    modules = package / "node_modules"
    ran(modules / ".bin/tsc", "--noEmit", "--strict", "--module", "nodenext", "--target", "es2022",
        "--types", "node", "--typeRoots", modules / "@types", "page.ts", cwd=tmp_path)  # fmt: skip
