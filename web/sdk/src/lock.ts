// One payer at a time signs for a purse: a file that says who. A holder that died is known by its process and the
// moment it began; taking over is itself done by one alone. Where nobody can tell, it counts as held.

import { readFile, unlink } from "node:fs/promises";
import { hostname } from "node:os";
import { join } from "node:path";

import { privateFolder, writeNew } from "./disk.js";
import { codeOf, Refusal } from "./refusal.js";

interface Holder {
  pid: number;
  host: string;
  /** Of this start of the process; "" where the system tells none. */
  began: string;
}

/** Held until *release*, or until this process ends. CHANNEL_HELD. */
export class Lock {
  private constructor(readonly path: string) {}

  static async take(folder: string): Promise<Lock> {
    await privateFolder(folder);
    const path = join(folder, "lock");
    const mine: Holder = { pid: process.pid, host: hostname(), began: await begunOf(process.pid) };
    for (;;) {
      if (await writeNew(path, JSON.stringify(mine))) return new Lock(path);
      const holder = await read(path);
      if (!holder) continue; // it was just given back
      if (await lives(holder)) throw held(path, holder);
      await bury(path, holder);
    }
  }

  async release(): Promise<void> {
    await unlink(this.path);
  }
}

/** Remove the lock of a dead *holder*: one process at a time, and only if it is still that one's. */
async function bury(path: string, holder: Holder): Promise<void> {
  const digging = `${path}.takeover`;
  if (!(await writeNew(digging, String(process.pid)))) throw held(digging, holder);
  try {
    const now = await read(path);
    if (now && JSON.stringify(now) === JSON.stringify(holder)) await unlink(path);
  } finally {
    await unlink(digging);
  }
}

const held = (path: string, { pid, host }: Holder) =>
  new Refusal("CHANNEL_HELD", `process ${pid} on ${host} signs for this purse`, `one payer signs for a purse: use that one, or stop it first; if it is surely gone, remove ${path}`);

async function read(path: string): Promise<Holder | null> {
  try {
    return JSON.parse(await readFile(path, "utf8")) as Holder; // ours, written whole
  } catch (error) {
    if (codeOf(error) === "ENOENT") return null;
    throw error;
  }
}

/** Another machine's process cannot be asked for: it counts as alive. */
async function lives({ pid, host, began }: Holder): Promise<boolean> {
  if (host !== hostname()) return true;
  try {
    process.kill(pid, 0);
  } catch (error) {
    return codeOf(error) === "EPERM";
  }
  return (await begunOf(pid)) === began;
}

/** When a process began, in ticks since its machine started, and which start that was; Linux alone tells. */
async function begunOf(pid: number): Promise<string> {
  try {
    const [stat, boot] = await Promise.all([readFile(`/proc/${pid}/stat`, "utf8"), readFile("/proc/sys/kernel/random/boot_id", "utf8")]);
    return `${boot.trim()} ${stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19]}`;
  } catch {
    return ""; // no Linux: the process's number alone is compared
  }
}
