"""Secrets sealed in the browser, files from it, and a second job from the channel of the first."""

from __future__ import annotations

import hashlib
import io
import random
import secrets
import tarfile
from pathlib import Path
from typing import Any

import pytest
from nacl.bindings import crypto_secretbox, crypto_sign_ed25519_pk_to_curve25519
from playwright.sync_api import Browser, expect

from marketplace.domain.errors import Malformed
from marketplace.domain.keys import Signer, unseal
from tests.browser.support.axe import both_themes
from tests.browser.support.product import SECONDS, Console, Product, until
from tests.browser.support.rental import ask, end_job, finish_channel, sign_in
from tests.browser.support.wallet import Wallet
from tests.unit.support.pool_keys import HOT, bech32, signing

pytestmark = pytest.mark.browser
SIZES = (0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129, 4000)
TELLS = (
    'python -c "import os, time\n'
    "print('file:', open('notes.txt').read())\n"
    "print('secret:', os.environ['TOKEN'][::-1], flush=True)\n"
    "os.makedirs('out'); open('out/answer', 'w').write('42')\n"
    'time.sleep(4)"'
)


def test_a_secret_sealed_in_the_browser_opens_for_the_provider_alone(
    running: Product, browser: Browser
) -> None:
    page = browser.new_context(base_url=running.market).new_page()
    page.goto("/")
    chance = random.Random(6)
    provider, other = Signer(secrets.token_bytes(32)), Signer(secrets.token_bytes(32))
    texts = ["".join(chance.choice("aé€𝄞 ") for _ in range(size)) for size in SIZES]
    boxes = page.evaluate(
        """async ([key, texts]) => {
          const {sealTo} = await import("/assets/crypto/seal.js");
          const {fromHex, toHex} = await import("/assets/crypto/bytes.js");
          return Promise.all(texts.map(async (text) => toHex(await sealTo(fromHex(key), text))));
        }""",
        [provider.verify_key.hex(), texts],
    )
    for text, box in zip(texts, boxes, strict=True):
        assert unseal(provider, bytes.fromhex(box)).decode() == text
        with pytest.raises(Malformed):
            unseal(other, bytes.fromhex(box))
    assert len({box[:64] for box in boxes}) == len(boxes), "a key of its own for each"

    # The pieces against libsodium's, and keys that are none.
    cases = [
        (secrets.token_bytes(32), secrets.token_bytes(24), secrets.token_bytes(n)) for n in SIZES
    ]
    keys = [Signer(secrets.token_bytes(32)).verify_key for _ in range(20)]
    got = page.evaluate(
        """async ([cases, keys, bad]) => {
          const {sealTo, secretbox, toX25519} = await import("/assets/crypto/seal.js");
          const {fromHex, toHex} = await import("/assets/crypto/bytes.js");
          const said = [];
          for (const key of bad) said.push(await sealTo(fromHex(key), "x").then(() => "sealed", () => "refused"));
          return [
            cases.map((parts) => toHex(secretbox(...parts.map(fromHex)))),
            keys.map((key) => toHex(toX25519(fromHex(key)))), said,
          ];
        }""",
        [
            [[part.hex() for part in case] for case in cases],
            [key.hex() for key in keys],
            ["01" + "00" * 31, "00" * 32, "ff" * 32, "aa" * 31],
        ],
    )
    assert got[0] == [crypto_secretbox(message, nonce, key).hex() for key, nonce, message in cases]
    assert got[1] == [crypto_sign_ed25519_pk_to_curve25519(key).hex() for key in keys]
    assert got[2] == ["refused"] * 4
    page.context.close()


VAULT = """
async () => {
  const {all} = await import("/assets/money/vault.js");
  const seen = (value) => value instanceof ArrayBuffer || value instanceof Uint8Array
    ? new TextDecoder("latin1").decode(value)
    : value instanceof CryptoKey ? `key ${value.extractable}`
    : value && typeof value === "object" ? Object.values(value).map(seen).join(" ") : String(value);
  return (await all()).map((book) => [book.state, Boolean(book.locked), seen(book)]);
}
"""


def vault(console: Console) -> list[Any]:
    """What this browser keeps: (state, whether secrets wait, all of it as text)."""
    found: list[Any] = console.page.evaluate(VAULT)
    return found


@pytest.mark.prove
def test_files_and_secrets_go_along_and_the_next_job_asks_no_wallet(
    running: Product, console: Console, wallet: Wallet, tmp_path: Path
) -> None:
    page = console.page
    until(lambda: wallet.lovelace() == 100_000_000, "the faucet's money")
    notes = tmp_path / "notes.txt"
    notes.write_text("taken along")
    sign_in(console, to="/jobs/new")
    page.get_by_label("Files", exact=True).set_input_files(notes)
    expect(page.get_by_label("Path under /workspace")).to_have_value("notes.txt")
    page.get_by_role("button", name="Add a secret").click()
    page.locator("[name=secret-name]").fill("LD_PRELOAD")
    expect(page.locator("#estimate")).to_contain_text("only the provider sets")
    page.locator("[name=secret-name]").fill("TOKEN")
    page.get_by_label("Image").fill(running.image)
    page.get_by_label("Command").fill(TELLS)
    page.get_by_label("Outputs").fill("out")
    page.get_by_label("Budget").fill("6")
    expect(page.locator("#estimate")).to_contain_text("At most")
    found = both_themes(page)
    page.get_by_role("button", name="Ask for a quote").click()
    expect(page.locator("#wrong")).to_contain_text("TOKEN has no value")
    page.locator("[name=secret-value]").fill(signing(HOT).replace("\n", " "))
    page.get_by_role("button", name="Ask for a quote").click()
    expect(page.locator("#wrong")).to_contain_text("the secret TOKEN holds a KES signing key")
    cold = tmp_path / "cold.skey"
    cold.write_text(signing("StakePoolSigningKey_ed25519"))
    page.get_by_label("Files", exact=True).set_input_files(cold)
    expect(page.locator("#wrong")).to_contain_text("cold.skey holds a pool's cold key")
    expect(page.get_by_label("Path under /workspace")).to_have_count(1)  # the notes alone
    page.get_by_label("Command").fill(bech32("vrf_sk", bytes(64)))
    expect(page.locator("#estimate")).to_contain_text("the command holds a VRF signing key")
    page.get_by_label("Command").fill(TELLS)
    page.locator("[name=secret-value]").fill("open sesame")
    page.get_by_role("button", name="Ask for a quote").click()

    # It waits unreadable; money is put aside for the next job, and the page shows what it read.
    go = page.get_by_role("button", name="Sign and start")
    expect(go).to_be_enabled()
    assert [(state, locked) for state, locked, _ in vault(console)] == [("NEW", True)]
    assert "sesame" not in str(vault(console)) and "key true" not in str(vault(console))
    page.get_by_label("Keep the channel open").check()
    page.get_by_label("Put aside").fill("2")
    expect(page.locator("#pay .bill")).to_contain_text("Put aside for later jobs")
    expect(page.locator("#pay .bill")).to_contain_text("₳2.00")
    expect(page.locator("#pay .checks")).to_contain_text("it holds what was agreed, no more")
    expect(go).to_be_enabled()
    found += both_themes(page)
    go.click()
    expect(page.locator("#log")).to_contain_text("file: taken along", timeout=180 * SECONDS)
    expect(page.locator("#log")).to_contain_text("secret: emases nepo")
    assert all(not locked for _, locked, _ in vault(console)), "sealed, and forgotten"
    expect(page.locator(".state-ended")).to_be_visible(timeout=180 * SECONDS)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == "out.tar"
    with tarfile.open(fileobj=io.BytesIO(Path(download.value.path()).read_bytes())) as archive:
        names = [name for name in archive.getnames() if name.endswith("answer")]
        member = archive.extractfile(names[0])
        assert member is not None and member.read() == b"42"
    blobs = page.evaluate(
        """async () => (await (await import("/assets/net/api.js")).get("/v1/blobs")).items"""
    )
    assert hashlib.sha256(b"taken along").hexdigest() in [blob["sha256"] for blob in blobs]
    assert wallet.asked == ["signData", "signTx"]

    # The next job at this provider: no window of the wallet, no transaction.
    page.goto("/channels")
    expect(page.locator("[data-left]")).to_contain_text("for your next job with this provider")
    expect(page.locator(".state-open")).to_be_visible()
    held = wallet.lovelace()
    ask(console, running.image, name="second")
    expect(page.locator("#warm")).to_contain_text("Your wallet is not asked")
    found += both_themes(page)
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator(".state-running")).to_be_visible(timeout=180 * SECONDS)
    until(lambda: int(page.locator("#ticks").inner_text()) >= 3, "three ticks")
    assert wallet.asked == ["signData", "signTx"] and wallet.lovelace() == held

    # More than is left: the wallet is asked for what is lacking, no more.
    end_job(page)
    expect(page.locator(".state-ended")).to_be_visible(timeout=180 * SECONDS)
    page.goto("/jobs/new")
    page.get_by_label("Image").fill(running.image)
    page.get_by_label("Longest").fill("1h")
    page.get_by_role("button", name="Ask for a quote").click()
    expect(page.locator("#warm")).to_contain_text("one signature")
    page.get_by_role("button", name="Top up and start").click()
    expect(page.locator(".state-running")).to_be_visible(timeout=180 * SECONDS)
    assert wallet.asked == ["signData", "signTx", "signTx"]
    until(lambda: wallet.lovelace() < held - 1_500_000, "the top-up has left the wallet")
    until(lambda: int(page.locator("#ticks").inner_text()) >= 2, "two ticks")
    job = page.url.rsplit("/", 1)[1]
    end_job(page)
    expect(page.locator(".state-ended")).to_be_visible(timeout=180 * SECONDS)

    # Finished: three jobs, one channel, every bill verified to the lovelace.
    page.goto("/channels")
    finish_channel(page)
    expect(page.locator(".state-ended")).to_be_visible(timeout=180 * SECONDS)
    page.goto(f"/jobs/{job}/invoice")
    expect(page.locator("#reconciled")).to_be_visible(timeout=180 * SECONDS)
    until(lambda: wallet.lovelace() > 98_500_000, "the rest at home")
    assert found == []
    assert console.said == []
