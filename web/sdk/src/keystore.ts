// Private keys at rest, in the one format of marketplace/keystore.py: a folder whose data key is sealed under a
// passphrase (argon2id, XSalsa20-Poly1305), and each key under the data key together with its name. There is no
// unencrypted form.

import { readFile, unlink } from "node:fs/promises";
import { join } from "node:path";

import { argon2id } from "hash-wasm";

import { concat, toHex, type Bytes } from "../../assets/crypto/bytes.js";
import { decode, encode } from "../../assets/crypto/cbor.js";
import { random } from "../../assets/crypto/ed25519.js";
import { secretbox, unbox } from "../../assets/crypto/seal.js";
import { privateFolder, writeNew } from "./disk.js";
import { codeOf, Refusal } from "./refusal.js";
import { verifyKeyOf } from "./signer.js";

const KEY = "tally/key/v1";
const STORE = "tally/keystore/v1";
const NAME = /^[a-z0-9][a-z0-9._-]{0,99}$/;
const LEAST = 8; // characters of the shortest passphrase that protects anything
const OPERATIONS = 3; // libsodium's "moderate"
const MEMORY = 256 << 20;
const OPERATIONS_MOST = 4; // and its "sensitive": no keystore asks for more
const MEMORY_MOST = 1 << 30;
const NONCE = 24;

type Row = { [name: string]: unknown };

export class Keystore {
  readonly #dataKey: Bytes;

  private constructor(
    readonly folder: string,
    dataKey: Bytes,
  ) {
    this.#dataKey = dataKey;
  }

  /** The keys of *folder*, which is made at first use. One argon2id, about half a second. PASSPHRASE_WRONG, … */
  static async unlock(folder: string, passphrase: string): Promise<Keystore> {
    const master = join(folder, "keystore.json");
    if (!(await read(master))) {
      await privateFolder(folder);
      await writeNew(master, JSON.stringify(await sealed(random(32), passphrase))); // another may be first: its key holds
    }
    const row = await read(master);
    if (!row) throw damaged("keystore.json is gone");
    return new Keystore(folder, await opened(row, passphrase, folder));
  }

  /** 32 bytes; null if there is no such key. */
  async seed(name: string): Promise<Bytes | null> {
    const row = await read(this.#path(name));
    if (!row) return null;
    const body = boxed(this.#dataKey, row);
    const parts: unknown = body && decode(body);
    const [tag, found, seed] = Array.isArray(parts) ? parts : [];
    if (tag !== KEY || found !== name || !(seed instanceof Uint8Array) || seed.length !== 32) throw damaged(`key ${name} does not open with this keystore`);
    const secret = new Uint8Array(seed);
    if (toHex(verifyKeyOf(secret)) !== row.public) throw damaged(`the file of key ${name} holds another key`);
    return secret;
  }

  /** A new key of that name, on the disk once this returns; its seed. KEY_EXISTS. */
  async create(name: string): Promise<Bytes> {
    return this.store(name, random(32));
  }

  /** *seed* under *name*. KEY_EXISTS. */
  async store(name: string, seed: Bytes): Promise<Bytes> {
    const row = { version: 1, public: toHex(verifyKeyOf(seed)), box: box(this.#dataKey, encode([KEY, name, seed])) };
    if (await writeNew(this.#path(name), JSON.stringify(row))) return seed;
    throw new Refusal("KEY_EXISTS", `key ${name} exists`, "choose another name, or load the one that exists");
  }

  /** Remove a key that can never be needed again. */
  async forget(name: string): Promise<void> {
    await unlink(this.#path(name)).catch((error: unknown) => {
      if (codeOf(error) !== "ENOENT") throw error;
    });
  }

  #path(name: string): string {
    if (!NAME.test(name)) throw new Refusal("MALFORMED", `${name} is not a key's name`, "lower case letters, digits, . _ -");
    return join(this.folder, `${name}.key`);
  }
}

const damaged = (why: string) => new Refusal("KEYSTORE_DAMAGED", why, "restore the folder from its backup");

async function read(path: string): Promise<Row | null> {
  let row: unknown;
  try {
    row = JSON.parse(await readFile(path, "utf8"));
  } catch (error) {
    if (codeOf(error) === "ENOENT") return null;
    throw damaged(`${path} cannot be read: ${String(error)}`);
  }
  if (typeof row !== "object" || row === null || !("version" in row) || row.version !== 1) throw damaged(`${path} is not of version 1`);
  return { ...row };
}

async function opened(row: Row, passphrase: string, folder: string): Promise<Bytes> {
  const { operations, memory, salt } = row;
  if (!Number.isInteger(operations) || !Number.isInteger(memory) || typeof salt !== "string") throw damaged("keystore.json lacks its argon2id parameters");
  const [turns, bytes] = [Number(operations), Number(memory)];
  if (turns > OPERATIONS_MOST || bytes > MEMORY_MOST) throw damaged("keystore.json asks for more work than any keystore we write");
  const body = boxed(await derived(passphrase, new Uint8Array(Buffer.from(salt, "base64")), turns, bytes), row);
  if (!body) throw new Refusal("PASSPHRASE_WRONG", `this passphrase does not open ${folder}`, "use the one that the keystore was made with or last changed to; nobody can recover it");
  const parts: unknown = decode(body);
  const [tag, key] = Array.isArray(parts) ? parts : [];
  if (tag !== STORE || !(key instanceof Uint8Array) || key.length !== 32) throw damaged("keystore.json holds no data key");
  return new Uint8Array(key);
}

async function sealed(dataKey: Bytes, passphrase: string): Promise<Row> {
  if ([...passphrase].length < LEAST) throw new Refusal("PASSPHRASE_MISSING", `a passphrase has ${LEAST} characters or more`, "choose a longer one");
  const salt = random(16);
  const key = await derived(passphrase, salt, OPERATIONS, MEMORY);
  return {
    version: 1, kdf: "argon2id", operations: OPERATIONS, memory: MEMORY,
    salt: Buffer.from(salt).toString("base64"), box: box(key, encode([STORE, dataKey])),
  };
}

async function derived(passphrase: string, salt: Bytes, iterations: number, memory: number): Promise<Bytes> {
  const made = await argon2id({ password: passphrase, salt, iterations, parallelism: 1, memorySize: memory >> 10, hashLength: 32, outputType: "binary" });
  return new Uint8Array(made);
}

/** Nonce and box as PyNaCl writes them one after the other. */
function box(key: Bytes, message: Bytes): string {
  const nonce = random(NONCE);
  return Buffer.from(concat(nonce, secretbox(key, nonce, message))).toString("base64");
}

function boxed(key: Bytes, row: Row): Bytes | null {
  if (typeof row.box !== "string") throw damaged("the keystore's box cannot be read");
  const bytes = new Uint8Array(Buffer.from(row.box, "base64"));
  return unbox(key, bytes.slice(0, NONCE), bytes.slice(NONCE));
}
