// A channel's datum as settle itself reads it: no more than it looks at, however oddly that is written. The
// reading is that of marketplace/chain/encoding/lenient.py; nothing is decoded that settle does not decode.

import { concat, nth, toHex } from "../crypto/bytes.js";

/**
 * @import { Bytes } from "../crypto/bytes.js"
 * @import { Consts } from "../money/records.js"
 * @typedef {{open: boolean, claimed: bigint, consts: Consts}} Stage of a channel of ours
 */

export class Malformed extends Error {}

const [GENERAL, BIG, BIG_NEGATIVE] = [102n, 2n, 3n]; // tags: a constructor as [number, fields]; integers as bytes
const BREAK = 0xff;
const SIZES = [32, 28, 28, 28]; // of session_vk, adapter_vkh, payout and consumer_vkh

/**
 * `[major type, number, where the content begins]`; the number is null where a break ends it.
 * @param {Bytes} raw
 * @param {number} at
 * @returns {[number, bigint | null, number]}
 */
function headOf(raw, at) {
  if (at >= raw.length) throw new Malformed("CBOR ends early");
  const [kind, info] = [nth(raw, at) >> 5, nth(raw, at) & 31];
  if (info < 24) return [kind, BigInt(info), at + 1];
  if (info === 31 && kind >= 2 && kind <= 5) return [kind, null, at + 1];
  const end = at + 1 + (1 << (info - 24));
  if (info > 27 || end > raw.length) throw new Malformed("CBOR ends early, or with a stray break");
  return [kind, BigInt(`0x${toHex(raw.subarray(at + 1, end))}`), end];
}

/**
 * A head that states a number: of an integer or a tag.
 * @type {(raw: Bytes, at: number) => [number, bigint, number]}
 */
function numbered(raw, at) {
  const [kind, number, begun] = headOf(raw, at);
  if (number === null) throw new Malformed("no number");
  return [kind, number, begun];
}

/**
 * Where the item that begins at *at* ends, however deep it is.
 * @type {(raw: Bytes, begun: number) => number}
 */
function skip(raw, begun) {
  let at = begun;
  /** @type {(bigint | null)[]} */
  const toCome = [1n]; // items at each open level; null: until a break
  for (let left = toCome.at(-1); left !== undefined; left = toCome.at(-1)) {
    if (left === 0n || (left === null && raw[at] === BREAK)) {
      toCome.pop();
      if (left === null) at += 1;
      continue;
    }
    if (left !== null) toCome[toCome.length - 1] = left - 1n;
    const [kind, number, from] = headOf(raw, at);
    at = from + octetsOf(kind, number);
    if (at > raw.length) throw new Malformed("CBOR ends early");
    const inner = itemsOf(kind, number);
    if (inner !== 0n) toCome.push(inner);
  }
  return at;
}

/**
 * How many bytes of its own follow a head.
 * @type {(kind: number, number: bigint | null) => number}
 */
const octetsOf = (kind, number) => (kind === 2 || kind === 3 ? Number(number ?? 0n) : 0);

/**
 * How many items follow a head; null where a break ends them, or the pieces of an open string.
 * @type {(kind: number, number: bigint | null) => bigint | null}
 */
function itemsOf(kind, number) {
  if (kind === 6) return 1n;
  if (kind < 2 || kind > 5 || (kind < 4 && number !== null)) return 0n;
  return kind === 5 && number !== null ? 2n * number : number;
}

/**
 * The bytes of each item of the list at *at*.
 * @type {(raw: Bytes, from?: number) => Bytes[]}
 */
function items(raw, from = 0) {
  const [kind, count, begun] = headOf(raw, from);
  if (kind !== 4) throw new Malformed("no list");
  /** @type {Bytes[]} */
  const found = [];
  let at = begun;
  while (count === null ? raw[at] !== BREAK : BigInt(found.length) < count) {
    const end = skip(raw, at);
    found.push(raw.subarray(at, end));
    at = end;
  }
  return found;
}

/**
 * `[number, the bytes of each field]`.
 * @type {(raw: Bytes) => [bigint, Bytes[]]}
 */
function constr(raw) {
  const [kind, tag, at] = numbered(raw, 0);
  if (kind !== 6) throw new Malformed("no constructor");
  if (tag === GENERAL) {
    const pair = items(raw, at);
    return [integer(part(pair, 0)), items(part(pair, 1))];
  }
  if (tag >= 121n && tag <= 127n) return [tag - 121n, items(raw, at)];
  if (tag >= 1280n && tag <= 1400n) return [tag - 1273n, items(raw, at)];
  throw new Malformed("no constructor");
}

/** @type {(parts: Bytes[], index: number) => Bytes} */
function part(parts, index) {
  if (index >= parts.length) throw new Malformed("too few fields");
  return nth(parts, index);
}

/** @type {(raw: Bytes) => bigint} */
function integer(raw) {
  const [kind, number, at] = numbered(raw, 0);
  if (kind === 0) return number;
  if (kind === 1) return -1n - number;
  if (kind !== 6 || (number !== BIG && number !== BIG_NEGATIVE)) throw new Malformed("no integer");
  const n = BigInt(`0x0${toHex(octets(raw.subarray(at)))}`);
  return number === BIG ? n : -1n - n;
}

/** @type {(raw: Bytes) => Bytes} */
function octets(raw) {
  const [kind, size, begun] = headOf(raw, 0);
  if (kind !== 2) throw new Malformed("no bytes");
  if (size !== null) return raw.slice(begun, begun + Number(size));
  /** @type {Bytes[]} */
  const pieces = [];
  for (let at = begun; raw[at] !== BREAK; ) {
    const [piece, length, from] = headOf(raw, at);
    if (piece !== 2 || length === null) throw new Malformed("open bytes have strange pieces");
    at = from + Number(length);
    pieces.push(raw.slice(from, at));
  }
  return concat(...pieces);
}

/**
 * A channel's datum: its constructor, what was claimed, and of its constants those that settle's step uses.
 * One that is missing or of another type is Malformed when it is asked for.
 */
export class State {
  /** @param {Bytes} datum */
  constructor(datum) {
    const [stage, fields] = constr(datum);
    this.consts = items(part(fields, 0));
    this.stage = stage;
    this.fields = fields;
    this.claimed = integer(part(fields, 1));
  }

  /** Hex, by which the provider's address is named. */
  get payout() {
    return toHex(octets(part(this.consts, 2)));
  }

  get consumerVkh() {
    return octets(part(this.consts, 3));
  }

  get feeBps() {
    return integer(part(this.consts, 5));
  }
}

/**
 * `{open, claimed, consts}` of a channel of ours, whose keys and hashes have their lengths; null for any other
 * datum. All numbers are BigInt.
 * @param {Bytes} datum
 * @returns {Stage | null}
 */
export function readStage(datum) {
  try {
    const state = new State(datum);
    const open = state.stage === 0n;
    if (!open && (state.stage !== 1n || state.fields.length !== 3)) return null;
    if ((open && state.fields.length !== 2) || state.consts.length !== 6) return null;
    if (!open) integer(part(state.fields, 2));
    const key = (/** @type {number} */ i) => octets(part(state.consts, i));
    const [session_vk, adapter_vkh, payout, consumer_vkh] = [key(0), key(1), key(2), key(3)];
    if ([session_vk, adapter_vkh, payout, consumer_vkh].some(({ length }, i) => length !== SIZES[i])) return null;
    const [close_period_ms, fee_bps] = [integer(part(state.consts, 4)), integer(part(state.consts, 5))];
    return { open, claimed: state.claimed, consts: { session_vk, adapter_vkh, payout, consumer_vkh, close_period_ms, fee_bps } };
  } catch (error) {
    if (error instanceof Malformed) return null;
    throw error;
  }
}
