// What a bill is made of, in the one form in which it is read (docs/invoice.md): what does not have it is
// refused before anything is reckoned.

import { messageOf } from "../crypto/bytes.js";
import { MOST_INT } from "./records.js";
import { parse } from "../crypto/strictjson.js";

/** @import { Whole } from "../crypto/cbor.js" */

/** @typedef {{body: string, signature: string}} ReceiptPart */

/**
 * A channel of the evidence.
 * @typedef {object} ChannelPart
 * @property {string} session_vk
 * @property {ReceiptPart[]} receipts in their order
 * @property {string} open_tx
 * @property {Whole} [index] of the output that opened it
 * @property {{cumulative: Whole, signature: string} | null} [voucher]
 */

/** @typedef {{body: string, signature: string}} SignedPart */
/** @typedef {{hop: string, salt: string}} OpeningPart */
/** @typedef {SignedPart & {in?: OpeningPart | null, out?: OpeningPart | null, paid?: {amount: Whole, signature: string} | null}} RoutePart */
/** @typedef {{session_signature: string, terms: string, adapter_signature: string, channel: string, route?: RoutePart | null}} LeasePart */
/** @typedef {{terms: string, amount: Whole}} LeafPart */

/**
 * A hop of routed leases: into a router, where there is its *offer*, or out of it.
 * @typedef {object} HopPart
 * @property {string} session_vk
 * @property {string} open_tx
 * @property {Whole} [index]
 * @property {SignedPart | null} [offer]
 * @property {SignedPart} statement
 * @property {LeafPart[]} leaves
 * @property {{cumulative: Whole, signature: string} | null} [voucher]
 */

/**
 * What a bill is made of, all of it signed; further keys are none of this page's business.
 * @typedef {{job: string, state?: unknown, leases: LeasePart[], channels: ChannelPart[], hops?: HopPart[] | null}} Evidence
 */

/**
 * What the ledger says of a channel of a bill.
 * @typedef {object} Facts
 * @property {string} session_vk
 * @property {string[]} consts
 * @property {bigint} funded
 * @property {bigint} claimed
 * @property {bigint} refunded
 * @property {bigint} held
 * @property {boolean} ended
 * @property {string[]} txs
 */

/** The rule that does not hold, the page's word for how, and where. */
export class Broken extends Error {
  /**
   * @param {string} rule
   * @param {string} way
   * @param {string} message
   */
  constructor(rule, way, message) {
    super(message);
    this.rule = rule;
    this.way = way;
  }
}

/** An id, in a text that anybody wrote. */
export const name = (/** @type {string} */ text) => (/^[A-Za-z0-9_.:-]{1,80}$/.test(text) ? text : JSON.stringify(text).slice(0, 80));

const MOST_BODY = 8192;

/**
 * The evidence of *text*, in the form that {@link reconcile} takes; Broken "MALFORMED" for anything else.
 * @param {string} text
 * @returns {Evidence}
 */
export function readEvidence(text) {
  let value;
  try {
    value = parse(text);
  } catch (error) {
    throw new Broken("MALFORMED", "json", messageOf(error));
  }
  return form(value);
}

/** @type {(holds: boolean, message: string) => asserts holds} */
function fits(holds, message) {
  if (!holds) throw new Broken("MALFORMED", "field", message);
}

/** @typedef {{[field: string]: unknown}} Fields */

/** @type {(row: Fields, field: string, sizes: (size: number) => boolean) => void} */
function hex(row, field, sizes) {
  const text = row[field];
  fits(typeof text === "string" && /^(?:[0-9a-f]{2})*$/.test(text), `${field} is not lower-case hex`);
  fits(sizes(text.length / 2), `${field} is ${text.length / 2} bytes long`);
}

/** @type {(...sizes: number[]) => (size: number) => boolean} */
const oneOf = (...sizes) => (size) => sizes.includes(size);
const isBody = (/** @type {number} */ size) => size >= 1 && size <= MOST_BODY;

/** @type {(value: unknown, most: bigint, field: string) => void} */
function whole(value, most, field) {
  fits(typeof value === "bigint" || (typeof value === "number" && Number.isSafeInteger(value)), `${field} is not an integer`);
  fits(value >= 0 && BigInt(value) <= most, `${field} is not within [0, ${most}]`);
}

/** @type {(value: unknown, field: string) => Fields} */
function object(value, field) {
  fits(typeof value === "object" && value !== null && !Array.isArray(value), `${field} is not an object`);
  return { ...value };
}

/** @type {(row: Fields, field: string) => [number, Fields][]} */
function list(row, field) {
  const found = row[field];
  fits(Array.isArray(found), `${field} is not a list`);
  return [...found.entries()].map(([i, one]) => [i, object(one, `${field}[${i}]`)]);
}

/** @type {(value: unknown) => boolean} */
const there = (value) => value !== null && value !== undefined;

/** @type {(value: unknown, field: string) => void} */
function signedForm(value, field) {
  const row = object(value, field);
  hex(row, "body", isBody);
  hex(row, "signature", oneOf(64));
}

/**
 * Where a channel or hop is on the ledger, and its voucher.
 * @type {(row: Fields) => void}
 */
function placeForm(row) {
  hex(row, "open_tx", oneOf(0, 32));
  if (row.index !== undefined) whole(row.index, 65_535n, "index");
  if (!there(row.voucher)) return;
  const given = object(row.voucher, "voucher");
  whole(given.cumulative, MOST_INT, "cumulative");
  hex(given, "signature", oneOf(64));
}

/** @type {(row: Fields) => void} */
function routeForm(row) {
  signedForm(row, "route");
  for (const side of ["in", "out"].filter((one) => there(row[one]))) {
    const opening = object(row[side], side);
    hex(opening, "hop", oneOf(32));
    hex(opening, "salt", oneOf(32));
  }
  if (!there(row.paid)) return;
  const paid = object(row.paid, "paid");
  whole(paid.amount, MOST_INT, "amount");
  hex(paid, "signature", oneOf(64));
}

/** @type {(row: Fields) => void} */
function hopForm(row) {
  hex(row, "session_vk", oneOf(32));
  placeForm(row);
  if (there(row.offer)) signedForm(row.offer, "offer");
  signedForm(row.statement, "statement");
  for (const [, leaf] of list(row, "leaves")) {
    hex(leaf, "terms", oneOf(32));
    whole(leaf.amount, MOST_INT, "amount");
  }
}

/**
 * *value* if every field of it is as the page says; further keys are ignored.
 * @param {unknown} value
 */
export function form(value) {
  const top = object(value, "the evidence");
  for (const field of ["leases", "channels"]) fits(Array.isArray(top[field]), `${field} is not a list`);
  const { job } = top;
  fits(typeof job === "string" && [...job].length <= 64 && job !== "" && !/\0|\p{Surrogate}/u.test(job), "job is not a text of 1 to 64 characters");
  for (const [, row] of list(top, "leases")) {
    hex(row, "session_signature", oneOf(0, 64));
    hex(row, "terms", isBody);
    hex(row, "adapter_signature", oneOf(64));
    hex(row, "channel", oneOf(32));
    if (there(row.route)) routeForm(object(row.route, "route"));
  }
  for (const [, row] of list(top, "channels")) {
    hex(row, "session_vk", oneOf(32));
    for (const [, receipt] of list(row, "receipts")) {
      hex(receipt, "body", isBody);
      hex(receipt, "signature", oneOf(64));
    }
    placeForm(row);
  }
  if (there(top.hops)) for (const [, row] of list(top, "hops")) hopForm(row);
  return /** @type {Evidence} */ (value); // each of its fields was just looked at
}

/**
 * *evidence*, if it is of *job*.
 * @param {Evidence} evidence
 * @param {string} job
 */
export function asked(evidence, job) {
  if (evidence.job === job) return evidence;
  throw new Broken("I10", "asked", `the evidence is of job ${name(evidence.job)}, and ${name(job)} was asked for`);
}
