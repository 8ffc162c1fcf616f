// A purse: a small hot balance whose keys open channels and sign for them, encrypted at rest. It is the folder that
// `tally purse` makes (marketplace/client/wallet/purse.py), and either reads what the other wrote.

import { homedir } from "node:os";
import { join } from "node:path";

import { toHex, type Bytes } from "../../assets/crypto/bytes.js";
import { baseAddress, textOf } from "./address.js";
import { privateFolder } from "./disk.js";
import { Keystore } from "./keystore.js";
import { passphraseFrom } from "./passphrase.js";
import { Refusal } from "./refusal.js";
import { keyHash, signerOf, stakeHash, type Signer } from "./signer.js";

const NAME = "purse";
const SESSION = "session-";
const MAINNET = 764824073;

export interface PurseOptions {
  /** Its folder: `$TALLY_HOME`, else `~/.tally`. */
  home?: string;
  /** Else it is read from *passphraseFile*, or from the file that TALLY_PASSPHRASE_FILE names. */
  passphrase?: string;
  passphraseFile?: string;
}

/** What a purse is made of, once it is unlocked. */
interface Parts {
  home: string;
  keys: Keystore;
  signer: Signer;
  stake: Bytes;
}

export class Purse {
  readonly #parts: Parts;

  private constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** The purse of a home that has one. KEY_MISSING, PASSPHRASE_MISSING, PASSPHRASE_WRONG, KEYSTORE_DAMAGED. */
  static async load(options: PurseOptions = {}): Promise<Purse> {
    const { home, keys } = await unlocked(options);
    const seed = await keys.seed(NAME);
    if (!seed) throw new Refusal("KEY_MISSING", `${home} holds no purse`, "Purse.create makes one, and so does `tally purse fund`");
    return Purse.#of(home, keys, seed);
  }

  /** The purse of a home, made if it is missing. */
  static async create(options: PurseOptions = {}): Promise<Purse> {
    const { home, keys } = await unlocked(options);
    return Purse.#of(home, keys, (await keys.seed(NAME)) ?? (await keys.create(NAME)));
  }

  static async #of(home: string, keys: Keystore, seed: Bytes): Promise<Purse> {
    return new Purse({ home, keys, signer: await signerOf(seed), stake: stakeHash(seed) });
  }

  get home(): string {
    return this.#parts.home;
  }

  /** The payment key; its private half signs and cannot be read. */
  get signer(): Signer {
    return this.#parts.signer;
  }

  /** By which markets and channels name it: the payment key's hash, hex. */
  get account(): string {
    return toHex(keyHash(this.signer.verifyKey));
  }

  /** Bytes of the address on the network *magic*. */
  at(magic: number): Bytes {
    return baseAddress(keyHash(this.signer.verifyKey), this.#parts.stake, magic === MAINNET);
  }

  /** Where to send money to: Bech32. */
  address(magic: number): string {
    return textOf(this.at(magic));
  }

  /** A fresh session key, on the disk before anybody hears of it. */
  async newSession(): Promise<Signer> {
    const seed = crypto.getRandomValues(new Uint8Array(32));
    const signer = await signerOf(seed);
    await this.#parts.keys.store(SESSION + toHex(signer.verifyKey), seed);
    return signer;
  }

  /** The private half of one of its channels' keys. KEY_MISSING. */
  async session(id: string): Promise<CryptoKey> {
    const seed = await this.#parts.keys.seed(SESSION + id);
    if (!seed) throw new Refusal("KEY_MISSING", `the key of channel ${id.slice(0, 16)} is not in ${this.home}`, "restore the folder from its backup");
    return (await signerOf(seed)).privateKey;
  }

  /** A key that never came to be on chain: the quote that it was for is gone. */
  forgetSession(id: string): Promise<void> {
    return this.#parts.keys.forget(SESSION + id);
  }
}

async function unlocked(options: PurseOptions): Promise<{ home: string; keys: Keystore }> {
  const home = options.home ?? process.env.TALLY_HOME ?? join(homedir(), ".tally");
  const passphrase = options.passphrase ?? (await passphraseFrom(options.passphraseFile));
  await privateFolder(home);
  return { home, keys: await Keystore.unlock(join(home, "keys"), passphrase) };
}
