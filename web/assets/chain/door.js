// A door to a chain, whoever chose it: a Blockfrost-compatible address, and what a request there carries.

import { SLOT_ZERO_S } from "./scripts.js";

/** @typedef {{url: string, project?: string}} Door *project*: the id that its owner wants with each request */

/**
 * What a request at the door carries: the project id goes to the door that it was given for alone.
 * @param {Door} at
 * @returns {{[name: string]: string}}
 */
export const headersOf = ({ project }) => (project ? { project_id: project } : {});

/**
 * `{slot, nowMs}`: by this computer's clock on public networks, else as the door says; slot null if nobody knows.
 * @param {number} magic
 * @param {Door | null} at
 * @returns {Promise<{slot: number | null, nowMs: number}>}
 */
export async function moment(magic, at) {
  const [zero, nowMs] = [SLOT_ZERO_S[magic], Date.now()];
  if (zero) return { slot: Math.floor(nowMs / 1000) - zero, nowMs };
  try {
    const answer = at && (await fetch(`${at.url}/blocks/latest`, { headers: headersOf(at) }));
    const { slot, time } = answer?.ok ? await answer.json() : {};
    if (Number.isInteger(slot) && Number.isInteger(time)) return { slot, nowMs: time * 1000 };
  } catch {
    // as below
  }
  return { slot: null, nowMs }; // how long it may wait is then not known; what it does is judged all the same
}
