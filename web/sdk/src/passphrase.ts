// Where a purse's passphrase comes from: a file that only its owner reads, never a variable's value.

import { readFile, stat } from "node:fs/promises";

import { messageOf } from "../../assets/crypto/bytes.js";
import { Refusal } from "./refusal.js";

const REMEDY = "write one of 8 characters or more to a file that only you can read and name it in TALLY_PASSPHRASE_FILE, or pass it as `passphrase`";

/** The passphrase in *file*, or in the one that TALLY_PASSPHRASE_FILE names. PASSPHRASE_MISSING. */
export async function passphraseFrom(file = process.env.TALLY_PASSPHRASE_FILE): Promise<string> {
  if (!file) throw new Refusal("PASSPHRASE_MISSING", "no passphrase was given", REMEDY);
  let text: string;
  let mode: number;
  try {
    [text, { mode }] = await Promise.all([readFile(file, "utf8"), stat(file)]);
  } catch (error) {
    throw new Refusal("PASSPHRASE_MISSING", `cannot read the passphrase file: ${messageOf(error)}`, REMEDY);
  }
  if (mode & 0o077) throw new Refusal("PASSPHRASE_MISSING", `others on this machine can read ${file}`, `chmod 600 ${file}`);
  return text.replace(/[\r\n]+$/, "");
}
