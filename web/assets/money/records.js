// What both sides sign: terms, receipts, vouchers, ends. The bytes and rules are those of
// marketplace/domain/money/{terms,receipt,voucher}.py; docs/invoice.md says them in words.

import { blake2b } from "../crypto/blake2b.js";
import { concat, fromHex, same, utf8 } from "../crypto/bytes.js";
import { decode, encode } from "../crypto/cbor.js";
import { verifies } from "../crypto/ed25519.js";
import { named } from "./jobspec.js";
import { isResource, KINDS } from "./kinds.js";
import { owed, unitMs } from "./units.js";

/**
 * @import { Bytes } from "../crypto/bytes.js"
 * @import { Whole } from "../crypto/cbor.js"
 * @import { JobSpec, PostedSpec } from "./jobspec.js"
 * @import { Resource } from "./kinds.js"
 */

/**
 * What the scripts hold of a channel for its whole life.
 * @typedef {object} Consts
 * @property {Bytes} session_vk key whose vouchers pay
 * @property {Bytes} adapter_vkh
 * @property {Bytes} payout
 * @property {Bytes} consumer_vkh
 * @property {Whole} close_period_ms
 * @property {Whole} fee_bps
 */

/**
 * What the provider and the session key sign before anything runs, field by field as docs/invoice.md has it.
 * @typedef {object} LeaseTerms
 * @property {Whole} magic
 * @property {string} lease
 * @property {string} job
 * @property {string} offer
 * @property {string} provider
 * @property {Bytes} adapter_vk
 * @property {Resource} resource
 * @property {Whole} rate_micro micro-lovelace for a unit-second
 * @property {Whole} units_milli
 * @property {number} tick_ms at most a minute, so never a BigInt
 * @property {Whole} grace_ms
 * @property {Whole} pause_limit_ms
 * @property {Whole} ceiling lovelace
 * @property {Whole} max_duration_ms
 * @property {string} asset "" for ADA
 * @property {Bytes} work hash of the job as it was posted
 * @property {Bytes} devices
 * @property {Whole} expires_at_ms
 * @typedef {Consts & LeaseTerms} Terms
 * @typedef {Terms & {route?: Bytes}} AnyTerms those of a routed lease have the hash of its route
 */

/**
 * What the provider signs for each tick (docs/invoice.md).
 * @typedef {object} Receipt
 * @property {Bytes} session_vk
 * @property {string} lease
 * @property {Whole} seq from 1, through all leases of the channel
 * @property {Whole} t0_ms of the lease's own clock, as t1_ms
 * @property {Whole} t1_ms
 * @property {Whole} wall_ms
 * @property {Bytes} device
 * @property {Resource} resource
 * @property {Whole} unit_ms_total
 * @property {Whole} lease_owed lovelace
 * @property {Whole} channel_owed lovelace
 * @property {[cause: string, ms: Whole][]} lost time that is not billed; {@link Cause} as far as this page knows it
 * @property {Bytes} readings
 * @property {Bytes} previous hash of the receipt before
 * @property {boolean} final
 * @property {Bytes} hash of its own bytes
 */

/**
 * Why time was not billed (marketplace/domain/metering/reading.py).
 * @typedef {"pulling" | "starting" | "paused" | "gpu_lost" | "xid" | "energy_reset" | "identity" | "reboot" |
 *   "nvml_gone" | "suspended" | "unproven" | "clock" | "syncing" | "lagging" | "unreachable" | "not_a_relay" |
 *   "assembling" | "group_stalled"} Cause
 */

/**
 * Steps of a lease that the provider tells of (marketplace/domain/protocol/wire.py, LeaseProgress).
 * @typedef {"CHANNEL_SEEN" | "PULLING" | "STARTING" | "STARTED" | "PAUSED" | "RESUMED" | "STOPPING" | "AT_TIP" | "OFF_TIP" | "ORDERED" | "FINISHED" | "SETTLED"} Stage
 */

/** @typedef {{way: string, why: string}} Fault the page's word for what is broken, and the whole of it */

/**
 * @typedef {object} Wanted what a quote is held against
 * @property {string} job
 * @property {number} magic
 * @property {PostedSpec} spec
 * @property {string} account
 * @property {Bytes} sessionVk
 * @property {Whole} spent lovelace of the budget that earlier providers had
 */

/** What is not as it must be; *code* names it. A *stop* is evidence: nothing more is signed. */
export class Refused extends Error {
  /**
   * @param {string} code
   * @param {string} message
   * @param {boolean} stop
   */
  constructor(code, message, stop = false) {
    super(message);
    this.code = code;
    this.stop = stop;
  }
}

const TERMS = [
  "magic", "lease", "job", "offer", "provider", "adapter_vk", "adapter_vkh", "payout", "session_vk",
  "consumer_vkh", "resource", "rate_micro", "units_milli", "tick_ms", "grace_ms", "pause_limit_ms",
  "close_period_ms", "fee_bps", "ceiling", "max_duration_ms", "asset", "work", "devices", "expires_at_ms",
];
const RECEIPT = [
  "session_vk", "lease", "seq", "t0_ms", "t1_ms", "wall_ms", "device", "resource", "unit_ms_total",
  "lease_owed", "channel_owed", "lost", "readings", "previous", "final",
];
/** @type {{[name: string]: number}} */
const SIZES = {
  adapter_vk: 32, adapter_vkh: 28, payout: 28, session_vk: 32, consumer_vkh: 28, work: 32, devices: 32,
  device: 32, readings: 32, previous: 32, route: 32, router_vk: 32, lease_vk: 32, in_commit: 32, out_commit: 32, root: 32,
};
const TEXTS = new Set(["lease", "job", "offer", "provider", "asset"]);
/** @type {{[name: string]: bigint}} */
const LEAST = { rate_micro: 1n, units_milli: 1n, ceiling: 1n, tick_ms: 1000n, seq: 1n, reserve: 1n, n: 1n, count: 1n };
/** @type {{[name: string]: bigint}} */
const MOST = { tick_ms: 60_000n, fee_bps: 100n, route_bps: 200n };
export const MOST_INT = 2n ** 63n - 1n;
const ASSET = /^(?:[0-9a-f]{56}(?:[0-9a-f]{2}){0,32})?$/;

/** @type {(v: unknown, most: number) => boolean} */
const isText = (v, most) => typeof v === "string" && [...v].length <= most && !v.includes("\0");
/** @type {(v: unknown, least?: bigint, most?: bigint) => boolean} */
const isWhole = (v, least = 0n, most = MOST_INT) =>
  (typeof v === "number" || typeof v === "bigint") && BigInt(v) >= least && BigInt(v) <= most;
/** @type {(v: unknown) => boolean} */
const isLost = (v) => Array.isArray(v) && v.length === 2 && isText(v[0], 40) && isWhole(v[1]);

/** @type {(name: string, v: unknown, letters: number) => boolean} */
function fitting(name, v, letters) {
  if (name in SIZES) return v instanceof Uint8Array && v.length === SIZES[name];
  if (name === "resource") return isResource(v);
  if (TEXTS.has(name)) return isText(v, letters);
  if (name === "lost") return Array.isArray(v) && v.every(isLost);
  if (name === "final") return typeof v === "boolean";
  return isWhole(v, LEAST[name], MOST[name]);
}

/**
 * The fields after *tag* of canonical *bytes*, each of the type and within the limits of docs/invoice.md.
 * @param {Bytes} bytes
 * @param {string} tag
 * @param {string[]} names
 * @param {string} what
 * @param {number} letters
 * @returns {{[name: string]: unknown}}
 */
export function fields(bytes, tag, names, what, letters) {
  const value = decode(bytes);
  if (!same(encode(value), bytes)) throw new Refused("MALFORMED", `${what} are not canonical`);
  if (!Array.isArray(value) || value.length !== names.length + 1 || value[0] !== tag) {
    throw new Refused("MALFORMED", `not ${what}`);
  }
  const found = Object.fromEntries(names.map((name, i) => [name, value[i + 1]]));
  for (const [name, v] of Object.entries(found)) {
    if (!fitting(name, v, letters)) throw new Refused("MALFORMED", `${name} of ${what} is malformed`);
  }
  return found;
}

/**
 * The terms of *bytes*; Refused for what are none.
 * @param {Bytes} bytes
 */
export function readTerms(bytes) {
  // Not checked by the compiler: `fields` has just checked every one of them.
  const terms = /** @type {Terms} */ (/** @type {unknown} */ (fields(bytes, "tally/terms/v1", TERMS, "terms", 200)));
  if (!ASSET.test(terms.asset)) throw new Refused("MALFORMED", "asset is neither empty nor hex of a policy and a name");
  return terms;
}

const ROUTED_TAG = "tally/terms/v2";

/**
 * The terms of *bytes*, direct or routed. Only a verifier asks: who signs knows the one form that it signs.
 * @param {Bytes} bytes
 * @returns {AnyTerms}
 */
export function readAnyTerms(bytes) {
  const tag = concat(Uint8Array.of(0x60 | ROUTED_TAG.length), utf8(ROUTED_TAG));
  if (!same(bytes.slice(2, 2 + tag.length), tag)) return readTerms(bytes);
  // As for the terms.
  const terms = /** @type {AnyTerms} */ (/** @type {unknown} */ (fields(bytes, ROUTED_TAG, [...TERMS, "route"], "terms", 200)));
  if (!ASSET.test(terms.asset)) throw new Refused("MALFORMED", "asset is neither empty nor hex of a policy and a name");
  return terms;
}

/**
 * The receipt of *bytes*; Refused for what is none.
 * @param {Bytes} bytes
 * @returns {Receipt}
 */
export function readReceipt(bytes) {
  // As for the terms.
  const receipt = /** @type {Receipt} */ (/** @type {unknown} */ (fields(bytes, "tally/receipt/v1", RECEIPT, "receipt", 64)));
  return { ...receipt, hash: blake2b(bytes) };
}

/**
 * The terms of *body*, if the adapter that they name signed them.
 * @param {Bytes} body
 * @param {Bytes} adapterSignature
 */
export async function verifyTerms(body, adapterSignature) {
  const terms = readTerms(body);
  if (!(await verifies(terms.adapter_vk, body, adapterSignature))) {
    throw new Refused("TERMS_REFUSED", "the provider did not sign these terms");
  }
  return terms;
}

/**
 * The channel's constants that *terms* demand, as one comparable text.
 * @type {(terms: Consts) => string}
 */
export const constsOf = (terms) =>
  [terms.session_vk, terms.adapter_vkh, terms.payout, terms.consumer_vkh, terms.close_period_ms, terms.fee_bps]
    .map((x) => (x instanceof Uint8Array ? Array.from(x).join(".") : String(x))).join("|");

const GENESIS = new Uint8Array(32);

/** @type {(rules: [way: string, holds: boolean, why: string][]) => Fault | null} */
const first = (rules) => {
  const [way, , why] = rules.find(([, holds]) => !holds) ?? [];
  return way && why ? { way, why } : null;
};

/**
 * Null if *receipt* follows from the channel's last and the lease's last, else the broken rule.
 * @type {(receipt: Receipt, before: Receipt | null, leaseBefore: Receipt | null, rateMicro: Whole) => string | null}
 */
export const brokenRule = (receipt, before, leaseBefore, rateMicro) =>
  chainFault(receipt, before, leaseBefore, rateMicro)?.why ?? null;

/**
 * Rule I4: how *receipt* does not follow the one before it on its channel and on its lease, in the page's word and
 * in a sentence: `{way, why}`, or null if it does.
 * @type {(receipt: Receipt, before: Receipt | null, leaseBefore: Receipt | null, rateMicro: Whole) => Fault | null}
 */
export function chainFault(receipt, before, leaseBefore, rateMicro) {
  const big = BigInt;
  const seq = big(before?.seq ?? 0) + 1n;
  const { lease_owed: owedBefore, t1_ms: until, unit_ms_total: used } = leaseBefore ?? { lease_owed: 0, t1_ms: 0, unit_ms_total: 0 };
  const total = big(before?.channel_owed ?? 0) + big(receipt.lease_owed) - big(owedBefore);
  return first([
    ["seq", big(receipt.seq) === seq, `seq is ${receipt.seq}, expected ${seq}`],
    ["previous", same(receipt.previous, before?.hash ?? GENESIS), "the hash chain does not continue"],
    ["channel", !before || same(receipt.session_vk, before.session_vk), "another channel"],
    ["lease", !leaseBefore || receipt.lease === leaseBefore.lease, "another lease"],
    ["final", !leaseBefore?.final, "the lease already had its last receipt"],
    ["backwards", receipt.t1_ms >= receipt.t0_ms, "time runs backwards"],
    ["gap", big(receipt.t0_ms) === big(until), "the ticks leave a gap"],
    ["shrinks", receipt.unit_ms_total >= used, "usage shrinks"],
    ["owed", big(receipt.lease_owed) === owed(receipt.unit_ms_total, rateMicro), "owed is not ms × rate"],
    ["sum", big(receipt.channel_owed) === total, "the channel's total is not the sum of its leases"],
  ]);
}

/**
 * Rule I9: usage never grows faster than time x units, and nothing is lost that did not pass: `{way, why}` or null.
 * @type {(receipt: Receipt, leaseBefore: Receipt | null, unitsMilli: Whole) => Fault | null}
 */
export function timeFault(receipt, leaseBefore, unitsMilli) {
  const [t1, total, before] = [BigInt(receipt.t1_ms), BigInt(receipt.unit_ms_total), BigInt(leaseBefore?.unit_ms_total ?? 0)];
  const elapsed = t1 - BigInt(receipt.t0_ms);
  const lost = receipt.lost.reduce((all, [, ms]) => all + BigInt(ms), 0n);
  const held = elapsed - lost + 1n; // both ends are rounded down, and so are the totals
  return first([
    ["total", total <= unitMs(t1, unitsMilli), `more usage than its own clock had time for: ${total} unit-ms in ${t1} ms`],
    ["growth", total <= before || total - before <= unitMs(held > 0n ? held : 0n, unitsMilli) + 1n, `usage grew faster than time: ${total - before} unit-ms in ${elapsed} ms less ${lost} lost`],
    ["lost", lost <= elapsed, `more time lost than there was: ${lost} ms in ${elapsed} ms`],
  ]);
}

/**
 * Null if the usage fits into the receipt's time, else why not.
 * @type {(receipt: Receipt, leaseBefore: Receipt | null, unitsMilli: Whole) => string | null}
 */
export const outgrown = (receipt, leaseBefore, unitsMilli) => timeFault(receipt, leaseBefore, unitsMilli)?.why ?? null;

/**
 * `"tally/v1" | cumulative as 8 bytes big-endian`.
 * @param {Whole} cumulative lovelace
 */
export function voucherMessage(cumulative) {
  const amount = new DataView(new ArrayBuffer(8));
  amount.setBigUint64(0, BigInt(cumulative));
  return concat(utf8("tally/v1"), new Uint8Array(amount.buffer));
}

/** @type {(sessionVk: Bytes, cumulative: Whole) => Bytes} */
export const endMessage = (sessionVk, cumulative) => encode(["tally/end/v1", sessionVk, BigInt(cumulative)]);

/**
 * The order by which the provider ends a channel that was idle for *keepMs*.
 * @type {(sessionVk: Bytes, keepMs: number) => Bytes}
 */
export const keepMessage = (sessionVk, keepMs) => encode(["tally/keep/v1", sessionVk, keepMs]);

/**
 * What `Terms.work` must be: the hash of the job as it was posted.
 * @type {(spec: PostedSpec) => Bytes}
 */
export const workOf = (spec) => blake2b(encode(spec));

/**
 * The least close period of a network, in milliseconds (marketplace/domain/money/terms.py).
 * @type {(magic: Whole) => number}
 */
export const closeFloor = (magic) => ([764824073, 1, 2].includes(Number(magic)) ? 12 * 3_600_000 : 0);

/**
 * Null if the terms are what was asked for, else the first that is not (marketplace/client/jobs/quotes.py).
 * @param {Terms} terms
 * @param {Wanted} wanted
 * @param {number} nowMs
 */
export function quoteFault(terms, wanted, nowMs) {
  const spec = named(wanted.spec);
  const cap = spec.price[KINDS[terms.resource].cap];
  const place = spec.placement;
  const allowed = !place.providers.length || place.providers.includes(terms.provider);
  /** @type {[boolean, string][]} */
  const rules = [
    [terms.job === wanted.job, "it is for another job"],
    [terms.magic === wanted.magic, "it is for another network"],
    [same(terms.work, workOf(wanted.spec)), "its work is not the job that was posted"],
    [same(terms.consumer_vkh, fromHex(wanted.account)), "the refund would go to another key"],
    [same(terms.session_vk, wanted.sessionVk), "it is on a channel of another key"],
    [terms.asset === "", "it is priced in another asset"],
    [!cap || terms.rate_micro <= cap, "its rate is above the job's cap"],
    [BigInt(terms.ceiling) + BigInt(wanted.spent) <= BigInt(spec.price.budget), "its ceiling exceeds the budget"],
    [terms.max_duration_ms <= spec.policy.max_duration_ms, "it runs longer than asked"],
    [terms.fee_bps <= 100, "its settlement fee is above what is usual"],
    [terms.close_period_ms >= closeFloor(terms.magic), "closing would take less than 12 hours on a public network"],
    [terms.close_period_ms <= 7 * 86_400_000, "closing would take more than a week"],
    [terms.expires_at_ms > nowMs, "it has expired"],
    [unitsFit(terms, spec), "it bills more devices, share or cores than were asked for"],
    [allowed && !place.not_providers.includes(terms.provider), "the placement excludes this provider"],
    [same(terms.adapter_vk, fromHex(terms.provider)), "provider and metering key differ"],
  ];
  return rules.find(([holds]) => !holds)?.[1] ?? null;
}

/** @type {(terms: Terms, spec: JobSpec) => boolean} */
function unitsFit(terms, spec) {
  return spec.resources.some(({ cpu, disk, gpu }) => {
    if ((spec.kind === "volume") !== (terms.resource === "disk")) return false; // neither is billed as the other
    if (terms.resource === "disk") return terms.units_milli <= Math.ceil(disk.least * 1000 / 1024);
    if (!KINDS[terms.resource].devices) return !gpu && terms.units_milli <= Math.max(cpu.least, 10);
    if (!gpu) return false;
    const { least, most = Infinity } = gpu.count;
    const [units, each] = [BigInt(terms.units_milli), BigInt(gpu.share)];
    return units % each === 0n && least <= units / each && units / each <= most;
  });
}
