// Files that are whole or not there: on the disk before anybody acts on them, and readable by their owner only.

import { randomBytes } from "node:crypto";
import { link, mkdir, open, rename, unlink } from "node:fs/promises";
import { dirname, join } from "node:path";

import { codeOf } from "./refusal.js";

/** A folder that only its owner enters. */
export async function privateFolder(path: string): Promise<void> {
  await mkdir(path, { recursive: true, mode: 0o700 });
}

/** *text* in place of whatever *path* held; after a crash it is the one or the other. */
export async function writeWhole(path: string, text: string): Promise<void> {
  const fresh = await aside(path, text);
  await rename(fresh, path);
  await syncFolder(dirname(path));
}

/** *text* at *path* if nothing is there; whether it was so. */
export async function writeNew(path: string, text: string): Promise<boolean> {
  const fresh = await aside(path, text);
  try {
    await link(fresh, path); // refuses what exists, whoever made it
    await syncFolder(dirname(path));
    return true;
  } catch (error) {
    if (codeOf(error) === "EEXIST") return false;
    throw error;
  } finally {
    await unlink(fresh);
  }
}

async function aside(path: string, text: string): Promise<string> {
  const fresh = join(dirname(path), `.new-${randomBytes(8).toString("hex")}`);
  const file = await open(fresh, "wx", 0o600);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
  return fresh;
}

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, "r");
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}
