// Keys, books and the lock on disk: never in clear, whole after a crash, and one payer at a time.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

const { Purse } = await import(process.env.TALLY_SDK);
const from = (path) => import(new URL(path, process.env.TALLY_SDK));
const { FileVault } = await from("./vault.js");
const { Lock } = await from("./lock.js");
const passphrase = "correct horse";
const code = (wanted) => (error) => error.code === wanted || assert.fail(`${error.code}: ${error.message}`);

let home, purse;
before(async () => {
  home = mkdtempSync(join(tmpdir(), "tally-sdk-"));
  purse = await Purse.create({ home, passphrase });
});
after(() => rmSync(home, { recursive: true }));

test("a purse opens with its passphrase alone, and is the same one again", async () => {
  assert.equal((await Purse.load({ home, passphrase })).address(42), purse.address(42));
  assert.match(purse.address(42), /^addr_test1/);
  assert.match(purse.address(764824073), /^addr1/);
  await assert.rejects(Purse.load({ home, passphrase: "wrong horse" }), code("PASSPHRASE_WRONG"));
  await assert.rejects(Purse.create({ home: join(home, "other"), passphrase: "short" }), code("PASSPHRASE_MISSING"));
});

test("a passphrase file that others can read is refused", async () => {
  const passphraseFile = join(home, "phrase");
  writeFileSync(passphraseFile, `${passphrase}\n`, { mode: 0o644 });
  await assert.rejects(Purse.load({ home, passphraseFile }), code("PASSPHRASE_MISSING"));
});

test("a session key is there before anybody hears of it, and in no file in clear", async () => {
  const { verifyKey } = await purse.newSession();
  const id = Buffer.from(verifyKey).toString("hex");
  const key = await purse.session(id);
  await assert.rejects(crypto.subtle.exportKey("pkcs8", key));
  const folder = join(home, "keys");
  for (const name of readdirSync(folder)) {
    assert.equal(statSync(join(folder, name)).mode & 0o077, 0, name);
    assert.deepEqual(Object.keys(JSON.parse(readFileSync(join(folder, name), "utf8"))).filter((one) => /seed|secret|private/.test(one)), []);
  }
  await purse.forgetSession(id);
  await assert.rejects(purse.session(id), code("KEY_MISSING"));
});

test("a key's file that was exchanged for another opens nothing", async () => {
  const ids = [];
  for (let n = 0; n < 2; n++) ids.push(Buffer.from((await purse.newSession()).verifyKey).toString("hex"));
  const path = (id) => join(home, "keys", `session-${id}.key`);
  writeFileSync(path(ids[0]), readFileSync(path(ids[1])));
  await assert.rejects(purse.session(ids[0]), code("KEYSTORE_DAMAGED"));
});

test("a book is read back as it was written, without its key; a damaged one is refused", async () => {
  const folder = join(home, "books");
  const vault = await FileVault.open(folder, purse);
  const { verifyKey, privateKey } = await purse.newSession();
  const id = Buffer.from(verifyKey).toString("hex");
  const book = { id, privateKey, state: "OPEN", account: purse.account, signed: 2n ** 60n, leases: {}, last: verifyKey, answered: [[3, verifyKey]] };
  await vault.keep(book);
  const again = await FileVault.open(folder, purse);
  const [{ privateKey: key, ...read }] = await again.all();
  const { privateKey: _, ...said } = book;
  assert.deepEqual(read, said);
  assert.equal(key.extractable, false);
  writeFileSync(join(folder, `${id}.json`), readFileSync(join(folder, `${id}.json`)).subarray(0, 40));
  await assert.rejects(FileVault.open(folder, purse), code("JOURNAL_DAMAGED"));
});

test("a disk that refuses a book ends the signing", async () => {
  const folder = join(home, "gone");
  const vault = await FileVault.open(folder, purse);
  rmSync(folder, { recursive: true });
  const book = { id: "ab".repeat(32), state: "NEW", account: purse.account };
  await assert.rejects(vault.keep(book), code("DISK_FAULT"));
  await assert.rejects(vault.keep(book), code("DISK_FAULT")); // and stays so
  assert.deepEqual(await vault.all(), []);
});

test("one payer at a time; one that was killed is followed by the next", async () => {
  const folder = join(home, "locked");
  const program = `const { Lock } = await import(${JSON.stringify(new URL("./lock.js", process.env.TALLY_SDK).href)});
    await Lock.take(${JSON.stringify(folder)}); console.log("held"); setInterval(() => {}, 1000);`;
  const other = spawn(process.execPath, ["--input-type=module", "-e", program], { stdio: ["ignore", "pipe", "inherit"] });
  await new Promise((done) => other.stdout.once("data", done));
  await assert.rejects(Lock.take(folder), code("CHANNEL_HELD"));
  const gone = new Promise((done) => other.once("exit", done));
  other.kill("SIGKILL");
  await gone;
  const [first, second] = await Promise.allSettled([Lock.take(folder), Lock.take(folder)]);
  assert.equal([first, second].filter(({ status }) => status === "fulfilled").length, 1);
  await (first.value ?? second.value).release();
  await (await Lock.take(folder)).release();
});
