// The books of a purse's channels on disk (web/assets/money/books.js): a file for each, written whole and synced
// before anything that it says is sent. Its key is in the keystore, never here.

import { readdir, readFile, unlink } from "node:fs/promises";
import { join } from "node:path";

import { fromHex, messageOf, toHex } from "../../assets/crypto/bytes.js";
import { isOpen, type Paying, type Stored, type Vault } from "../../assets/money/books.js";
import { privateFolder, writeWhole } from "./disk.js";
import type { Purse } from "./purse.js";
import { codeOf, Refusal } from "./refusal.js";

const FILE = /^[0-9a-f]{64}\.json$/;
const VERSION = 1;

export class FileVault implements Vault {
  readonly #books = new Map<string, Stored>();
  /** What the disk refused: nothing more is kept, so nothing more is signed. */
  fault: Error | null = null;

  private constructor(readonly folder: string) {}

  /** All books of *folder*, with their keys. JOURNAL_DAMAGED for one that cannot be read, KEY_MISSING. */
  static async open(folder: string, purse: Purse): Promise<FileVault> {
    await privateFolder(folder);
    const vault = new FileVault(folder);
    for (const name of (await readdir(folder)).filter((one) => FILE.test(one)).sort()) {
      const book = read(await readFile(join(folder, name), "utf8"), join(folder, name));
      vault.#books.set(book.id, { ...book, privateKey: await purse.session(book.id) });
    }
    return vault;
  }

  async keep(book: Stored): Promise<void> {
    if (this.fault) throw this.fault;
    const { privateKey: _, ...said } = book;
    try {
      await writeWhole(this.#path(book.id), write({ version: VERSION, ...said }));
    } catch (error) {
      this.fault = new Refusal("DISK_FAULT", `the book of channel ${book.id.slice(0, 16)} cannot be written: ${messageOf(error)}`, "make room on the disk, and start again: nothing is signed meanwhile");
      throw this.fault;
    }
    this.#books.set(book.id, book);
  }

  async load(id: string): Promise<Stored | undefined> {
    return this.#books.get(id);
  }

  async all(): Promise<Stored[]> {
    return [...this.#books.values()];
  }

  async open(): Promise<Paying[]> {
    return [...this.#books.values()].filter(isOpen);
  }

  async forget(id: string): Promise<void> {
    await unlink(this.#path(id)).catch((error: unknown) => {
      if (codeOf(error) !== "ENOENT") throw error;
    });
    this.#books.delete(id);
  }

  #path(id: string): string {
    return join(this.folder, `${id}.json`);
  }
}

/** JSON in which bytes are `{"hex": …}` and integers beyond a number's `{"int": …}`. */
const write = (value: object): string =>
  JSON.stringify(value, (_, part: unknown) => {
    if (part instanceof Uint8Array) return { hex: toHex(part) };
    return typeof part === "bigint" ? { int: part.toString() } : part;
  });

function read(text: string, path: string): Stored {
  try {
    const { version, ...book } = JSON.parse(text, (_, part: unknown) => {
      if (typeof part !== "object" || part === null || Object.keys(part).length !== 1) return part;
      if ("hex" in part) return fromHex(part.hex);
      return "int" in part ? BigInt(String(part.int)) : part;
    }) as Stored & { version: unknown };
    if (version !== VERSION || !path.endsWith(`${book.id}.json`)) throw new Error("it is another's, or of another version");
    return book;
  } catch (error) {
    throw new Refusal("JOURNAL_DAMAGED", `${path} cannot be read: ${messageOf(error)}`, "restore it from a backup, or move it away and close its channel with `tally channel close --all`");
  }
}
