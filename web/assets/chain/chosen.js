// Where this browser reads the chain: the door that its owner chose, else the one that the market names,
// which is the market's word and is said to be so.

import { get } from "../net/api.js";

/** @import { Door } from "./door.js" */

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
 * Where to ask, and whether its owner chose it; null where nobody names any.
 * @returns {Promise<(Door & {own: boolean}) | null>}
 */
export async function door() {
  const chosen = chosenDoor();
  if (chosen) return { ...chosen, own: true };
  /** @type {{chain_url: string}} */
  const { chain_url: url } = await get("/v1/network");
  return url ? { url, own: false } : null;
}
