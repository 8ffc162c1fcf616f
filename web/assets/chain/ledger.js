// A bill's evidence made whole, and beside it what a chain shows of each of its channels.

import { fromHex } from "../crypto/bytes.js";
import { parse } from "../crypto/strictjson.js";
import { Broken } from "../money/evidence.js";
import { readAnyTerms, readReceipt } from "../money/records.js";
import { facts, feeOf, Unreachable } from "./chain.js";
import { Unread } from "./descent.js";

/**
 * @import { Bytes } from "../crypto/bytes.js"
 * @import { ChannelPart, Evidence, Facts, HopPart, LeasePart } from "../money/evidence.js"
 * @import { Door } from "./door.js"
 */

/**
 * Of each channel, then of each hop. *elsewhere* is an open that is another's: what was signed is judged before it.
 * *trouble*: why the chain could not be asked; "" if it was.
 * @typedef {{ledger: (Facts | null)[], elsewhere: Broken | null, trouble: string}} Shown
 */

/**
 * What does not decode names nothing: the rules refuse it where it stands.
 * @type {(read: (bytes: Bytes) => {lease: string}, body: string) => string | null}
 */
function leaseIn(read, body) {
  try {
    return read(fromHex(body)).lease;
  } catch {
    return null;
  }
}

/**
 * What a channel or hop is paid in; as above.
 * @type {(evidence: Evidence, channel: ChannelPart | HopPart) => string | null}
 */
function assetOf(evidence, { session_vk }) {
  const on = evidence.leases.find(({ channel, route }) => (route ? [route.in?.hop, route.out?.hop] : [channel]).includes(session_vk));
  try {
    return readAnyTerms(fromHex(on?.terms)).asset;
  } catch {
    return null;
  }
}

/**
 * With the terms of other jobs' leases whose receipts are in the same chain; *text* reads a path of the market's API.
 * @param {Evidence} evidence
 * @param {(path: string) => Promise<string>} text
 */
export async function whole(evidence, text) {
  const known = new Set(evidence.leases.map(({ terms }) => leaseIn(readAnyTerms, terms)));
  const named = new Set(evidence.channels.flatMap((channel) => channel.receipts.map(({ body }) => leaseIn(readReceipt, body))));
  for (const lease of named) {
    if (lease === null || known.has(lease)) continue;
    const told = parse(await text(`/v1/leases/${encodeURIComponent(lease)}`));
    evidence.leases.push(/** @type {LeasePart} */ (told)); // `reconcile` looks at each of its fields before it reads one
  }
  return evidence;
}

/**
 * What the chain at *door* shows of each channel of *evidence*, whose job is *over* or not.
 * @type {(evidence: Evidence, door: Door | null, over: boolean) => Promise<Shown>}
 */
export async function shownOf(evidence, door, over) {
  /** @type {Shown} */
  const shown = { ledger: [], elsewhere: null, trouble: "" };
  for (const channel of [...evidence.channels, ...(evidence.hops ?? [])]) {
    const asset = assetOf(evidence, channel); // of a routed lease's receipts none: the ledger does not know them
    try {
      shown.ledger.push(door && asset !== null ? await facts(door, channel, asset, over) : null);
    } catch (error) {
      if (error instanceof Broken) shown.elsewhere ??= error;
      else if (error instanceof Unreachable || error instanceof Unread) shown.trouble = error.message;
      else throw error;
      shown.ledger.push(null);
    }
  }
  return shown;
}

/**
 * What the network took for opening the channels whose first receipt is this job's: a kept channel was opened, and its
 * fee was paid, by the job before. Null where a fee cannot be read.
 * @type {(evidence: Evidence, door: Door | null) => Promise<bigint | null>}
 */
export async function networkFees(evidence, door) {
  const mine = new Set(evidence.leases.flatMap(({ terms }) => { const one = readAnyTerms(fromHex(terms)); return one.job === evidence.job ? [one.lease] : []; }));
  let sum = 0n;
  for (const { open_tx: tx, receipts: [first] } of evidence.channels) {
    if (!tx || (first && !mine.has(readReceipt(fromHex(first.body)).lease))) continue;
    const fee = door ? await feeOf(door, tx).catch(() => null) : null;
    if (fee === null) return null;
    sum += fee;
  }
  return sum;
}
