// Where this browser reads the chain: the door that its owner chose, else the one that the market names,
// which is the market's word and is said to be so.

import { get } from "../net/api.js";
import { SLOT_ZERO_S } from "./scripts.js";

const CHOSEN = "tally-chain";

/**
 * `{url, project}` that was chosen here, or null.
 * @returns {{url: string, project: string} | null}
 */
export function chosenDoor() {
  const [url, project = ""] = (localStorage.getItem(CHOSEN) ?? "").split(" ");
  return url ? { url, project } : null;
}

/**
 * Choose a Blockfrost-compatible address, with its project id where it wants one; empty for the market's.
 * The market lets this browser's pages connect there (its content security policy) by a cookie.
 * @param {string} url
 */
export function chooseDoor(url, project = "") {
  const clean = url.trim().replace(/\/+$/, "");
  if (!clean) {
    localStorage.removeItem(CHOSEN);
    document.cookie = "tally_chain=; path=/; max-age=0; samesite=strict";
    return;
  }
  const { origin, protocol } = new URL(clean);
  if (!["http:", "https:"].includes(protocol) || /[\s;,'"]/.test(clean + project.trim())) throw new Error("a chain's address begins with https://");
  localStorage.setItem(CHOSEN, `${clean} ${project.trim()}`);
  document.cookie = `tally_chain=${origin}; path=/; max-age=31536000; samesite=strict${location.protocol === "https:" ? "; secure" : ""}`;
}

/**
 * `{url, own}`: where to ask, and whether its owner chose it; null where nobody names any.
 * @returns {Promise<{url: string, own: boolean} | null>}
 */
export async function door() {
  const chosen = chosenDoor();
  if (chosen) return { url: chosen.url, own: true };
  /** @type {{chain_url: string}} */
  const { chain_url: url } = await get("/v1/network");
  return url ? { url, own: false } : null;
}

/**
 * What a request to *url* carries: the project id goes to the door that it was given for alone.
 * @param {string} url
 * @returns {{[name: string]: string}}
 */
export function headersFor(url) {
  const chosen = chosenDoor();
  return chosen?.project && url.startsWith(`${chosen.url}/`) ? { project_id: chosen.project } : {};
}

/**
 * `{slot, nowMs}`: by this computer's clock on public networks, else as the door says; slot null if nobody knows.
 * @param {number} magic
 * @returns {Promise<{slot: number | null, nowMs: number}>}
 */
export async function moment(magic) {
  const [zero, nowMs] = [SLOT_ZERO_S[magic], Date.now()];
  if (zero) return { slot: Math.floor(nowMs / 1000) - zero, nowMs };
  try {
    const at = await door();
    const answer = at && (await fetch(`${at.url}/blocks/latest`, { headers: headersFor(`${at.url}/`) }));
    const { slot, time } = answer?.ok ? await answer.json() : {};
    if (Number.isInteger(slot) && Number.isInteger(time)) return { slot, nowMs: time * 1000 };
  } catch {
    // as below
  }
  return { slot: null, nowMs }; // how long it may wait is then not known; what it does is judged all the same
}
