// What both sides sign: terms, receipts, vouchers, ends. The bytes and rules are those of
// marketplace/domain/{terms,receipt,voucher}.py; docs/invoice.md says them in words.

import { blake2b } from "./blake2b.js";
import { concat, fromHex, same, utf8 } from "./bytes.js";
import { decode, encode } from "./cbor.js";
import { verifies } from "./crypto.js";
import { owed, unitMs } from "./units.js";

export class Refused extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
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
const SIZES = {
  adapter_vk: 32, adapter_vkh: 28, payout: 28, session_vk: 32, consumer_vkh: 28, work: 32, devices: 32,
  device: 32, readings: 32, previous: 32,
};
const TEXTS = new Set(["lease", "job", "offer", "provider", "asset", "resource"]);

function fields(bytes, tag, names, what) {
  const value = decode(bytes);
  if (!same(encode(value), bytes)) throw new Refused("MALFORMED", `${what} are not canonical`);
  if (!Array.isArray(value) || value.length !== names.length + 1 || value[0] !== tag) {
    throw new Refused("MALFORMED", `not ${what}`);
  }
  const found = Object.fromEntries(names.map((name, i) => [name, value[i + 1]]));
  for (const [name, v] of Object.entries(found)) {
    const fits =
      name in SIZES ? v instanceof Uint8Array && v.length === SIZES[name]
      : TEXTS.has(name) ? typeof v === "string"
      : name === "lost" ? Array.isArray(v)
      : name === "final" ? typeof v === "boolean"
      : (typeof v === "number" || typeof v === "bigint") && v >= 0;
    if (!fits) throw new Refused("MALFORMED", `${name} of ${what} is malformed`);
  }
  if (!["gpu", "core"].includes(found.resource)) throw new Refused("MALFORMED", "resource is gpu or core");
  return found;
}

export const readTerms = (bytes) => fields(bytes, "tally/terms/v1", TERMS, "terms");

export function readReceipt(bytes) {
  const receipt = fields(bytes, "tally/receipt/v1", RECEIPT, "receipt");
  return { ...receipt, hash: blake2b(bytes) };
}

/** The terms of *body*, if the adapter that they name signed them. */
export async function verifyTerms(body, adapterSignature) {
  const terms = readTerms(body);
  if (!(await verifies(terms.adapter_vk, body, adapterSignature))) {
    throw new Refused("TERMS_REFUSED", "the provider did not sign these terms");
  }
  return terms;
}

/** The channel's constants that *terms* demand, as one comparable text. */
export const constsOf = (terms) =>
  [terms.session_vk, terms.adapter_vkh, terms.payout, terms.consumer_vkh, terms.close_period_ms, terms.fee_bps]
    .map((x) => (x instanceof Uint8Array ? Array.from(x).join(".") : String(x))).join("|");

const GENESIS = new Uint8Array(32);

/** Null if *receipt* follows from the channel's last and the lease's last, else the broken rule. */
export function brokenRule(receipt, before, leaseBefore, rateMicro) {
  const big = BigInt;
  const channelBefore = big(before?.channel_owed ?? 0);
  const leaseOwedBefore = big(leaseBefore?.lease_owed ?? 0);
  const rules = [
    [receipt.seq === (before?.seq ?? 0) + 1, `seq is ${receipt.seq}, expected ${(before?.seq ?? 0) + 1}`],
    [same(receipt.previous, before?.hash ?? GENESIS), "the hash chain does not continue"],
    [!before || same(receipt.session_vk, before.session_vk), "another channel"],
    [!leaseBefore || receipt.lease === leaseBefore.lease, "another lease"],
    [!leaseBefore?.final, "the lease already had its last receipt"],
    [receipt.t1_ms >= receipt.t0_ms, "time runs backwards"],
    [receipt.t0_ms === (leaseBefore?.t1_ms ?? 0), "the ticks leave a gap"],
    [receipt.unit_ms_total >= (leaseBefore?.unit_ms_total ?? 0), "usage shrinks"],
    [big(receipt.lease_owed) === owed(receipt.unit_ms_total, rateMicro), "owed is not ms × rate"],
    [
      big(receipt.channel_owed) === channelBefore + big(receipt.lease_owed) - leaseOwedBefore,
      "the channel's total is not the sum of its leases",
    ],
  ];
  return rules.find(([holds]) => !holds)?.[1] ?? null;
}

/** Null if the usage fits into the receipt's time, else why not (rule I9, marketplace/domain/receipt.py). */
export function outgrown(receipt, leaseBefore, unitsMilli) {
  const before = BigInt(leaseBefore?.unit_ms_total ?? 0);
  const total = BigInt(receipt.unit_ms_total);
  const paused = receipt.lost.reduce((sum, [cause, ms]) => (cause === "paused" ? sum + BigInt(ms) : sum), 0n);
  const held = BigInt(receipt.t1_ms) - BigInt(receipt.t0_ms) - paused + 1n; // both ends are rounded down
  if (total > unitMs(receipt.t1_ms, unitsMilli)) return "more usage than its own clock had time for";
  if (total > before + unitMs(held > 0n ? held : 0n, unitsMilli)) return "usage grew faster than time";
  return held < 0n ? "more time paused than there was" : null;
}

/** `"tally/v1" | cumulative as 8 bytes big-endian`. */
export function voucherMessage(cumulative) {
  const amount = new DataView(new ArrayBuffer(8));
  amount.setBigUint64(0, BigInt(cumulative));
  return concat(utf8("tally/v1"), new Uint8Array(amount.buffer));
}

export const endMessage = (sessionVk, cumulative) => encode(["tally/end/v1", sessionVk, BigInt(cumulative)]);

/** What `Terms.work` must be: the hash of the job as it was posted. */
export const workOf = (spec) => blake2b(encode(spec));

/** The least close period of a network, in milliseconds (marketplace/domain/terms.py). */
export const closeFloor = (magic) => ([764824073, 1, 2].includes(Number(magic)) ? 12 * 3_600_000 : 0);

/** Null if the terms are what was asked for, else the first that is not (marketplace/client/quotes.py). */
export function quoteFault(terms, wanted, nowMs) {
  const { spec } = wanted;
  const cap = terms.resource === "gpu" ? spec.price[0] : spec.price[1];
  const place = spec.placement;
  const allowed = !place.providers.length || place.providers.includes(terms.provider);
  const rules = [
    [terms.job === wanted.job, "it is for another job"],
    [terms.magic === wanted.magic, "it is for another network"],
    [same(terms.work, workOf(spec)), "its work is not the job that was posted"],
    [same(terms.consumer_vkh, fromHex(wanted.account)), "the refund would go to another key"],
    [same(terms.session_vk, wanted.sessionVk), "it is on a channel of another key"],
    [terms.asset === "", "it is priced in another asset"],
    [!cap || terms.rate_micro <= cap, "its rate is above the job's cap"],
    [terms.ceiling + wanted.spent <= spec.price[2], "its ceiling exceeds the budget"],
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

function unitsFit(terms, spec) {
  return spec.resources.some(([cpu, , , gpu]) => {
    if (terms.resource === "core") return gpu === null && terms.units_milli <= Math.max(cpu[0], 10);
    if (gpu === null) return false;
    const [, [least, most], , share] = gpu;
    const count = terms.units_milli / share;
    return Number.isInteger(count) && least <= count && count <= most;
  });
}
