// A channel's datum as settle itself reads it: no more than it looks at, however oddly that is written. The
// reading is that of marketplace/chain/lax.py; nothing is decoded that settle does not decode.

import { concat, toHex } from "./bytes.js";

export class Malformed extends Error {}

const [GENERAL, BIG, BIG_NEGATIVE] = [102n, 2n, 3n]; // tags: a constructor as [number, fields]; integers as bytes
const SIZES = [32, 28, 28, 28]; // of session_vk, adapter_vkh, payout and consumer_vkh

/** `[major type, number, where the content begins]`; the number is null where a break ends it. */
function headOf(raw, at) {
  if (at >= raw.length) throw new Malformed("CBOR ends early");
  const [kind, info] = [raw[at] >> 5, raw[at] & 31];
  if (info < 24) return [kind, BigInt(info), at + 1];
  if (info === 31 && kind >= 2 && kind <= 5) return [kind, null, at + 1];
  const end = at + 1 + (1 << (info - 24));
  if (info > 27 || end > raw.length) throw new Malformed("CBOR ends early, or with a stray break");
  return [kind, BigInt(`0x${toHex(raw.subarray(at + 1, end))}`), end];
}

/** Where the item that begins at *at* ends, however deep it is. */
function skip(raw, at) {
  const toCome = [1n]; // items at each open level; null: until a break
  while (toCome.length) {
    const left = toCome.at(-1);
    if (left === 0n || (left === null && raw[at] === 0xff)) {
      toCome.pop();
      if (left === null) at += 1;
      continue;
    }
    if (left !== null) toCome[toCome.length - 1] = left - 1n;
    const [kind, number, begun] = headOf(raw, at);
    at = begun;
    if ((kind === 2 || kind === 3) && number !== null) {
      at += Number(number);
      if (at > raw.length) throw new Malformed("CBOR ends early");
    } else if (kind >= 2 && kind <= 4) toCome.push(number);
    else if (kind === 5) toCome.push(number === null ? null : 2n * number);
    else if (kind === 6) toCome.push(1n);
  }
  return at;
}

/** The bytes of each item of the list at *at*. */
function items(raw, at = 0) {
  const [kind, count, begun] = headOf(raw, at);
  if (kind !== 4) throw new Malformed("no list");
  const found = [];
  at = begun;
  while (count === null ? raw[at] !== 0xff : BigInt(found.length) < count) {
    const end = skip(raw, at);
    found.push(raw.subarray(at, end));
    at = end;
  }
  return found;
}

/** `[number, the bytes of each field]`. */
function constr(raw) {
  const [kind, tag, at] = headOf(raw, 0);
  if (kind !== 6) throw new Malformed("no constructor");
  if (tag === GENERAL) {
    const pair = items(raw, at);
    return [integer(part(pair, 0)), items(part(pair, 1))];
  }
  if (tag >= 121n && tag <= 127n) return [tag - 121n, items(raw, at)];
  if (tag >= 1280n && tag <= 1400n) return [tag - 1273n, items(raw, at)];
  throw new Malformed("no constructor");
}

function part(parts, index) {
  if (index >= parts.length) throw new Malformed("too few fields");
  return parts[index];
}

function integer(raw) {
  const [kind, number, at] = headOf(raw, 0);
  if (kind === 0) return number;
  if (kind === 1) return -1n - number;
  if (kind !== 6 || (number !== BIG && number !== BIG_NEGATIVE)) throw new Malformed("no integer");
  const n = BigInt(`0x0${toHex(octets(raw.subarray(at)))}`);
  return number === BIG ? n : -1n - n;
}

function octets(raw) {
  const [kind, size, begun] = headOf(raw, 0);
  if (kind !== 2) throw new Malformed("no bytes");
  if (size !== null) return raw.slice(begun, begun + Number(size));
  const pieces = [];
  for (let at = begun; raw[at] !== 0xff; ) {
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
  constructor(datum) {
    const [stage, fields] = constr(datum);
    this.consts = items(part(fields, 0));
    Object.assign(this, { stage, fields, claimed: integer(part(fields, 1)) });
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
 */
export function readStage(datum) {
  try {
    const state = new State(datum);
    const open = state.stage === 0n;
    if (!open && (state.stage !== 1n || state.fields.length !== 3)) return null;
    if ((open && state.fields.length !== 2) || state.consts.length !== 6) return null;
    if (!open) integer(state.fields[2]);
    const keys = state.consts.slice(0, 4).map(octets);
    if (keys.some((key, i) => key.length !== SIZES[i])) return null;
    const [session_vk, adapter_vkh, payout, consumer_vkh] = keys;
    const [close_period_ms, fee_bps] = state.consts.slice(4).map(integer);
    return { open, claimed: state.claimed, consts: { session_vk, adapter_vkh, payout, consumer_vkh, close_period_ms, fee_bps } };
  } catch (error) {
    if (error instanceof Malformed) return null;
    throw error;
  }
}
