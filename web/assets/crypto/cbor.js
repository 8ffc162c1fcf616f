// CBOR (RFC 8949): what Cardano and Tally's frames use, and nothing more.
//
// Integers beyond 2^53 are BigInt, bytes are Uint8Array, text maps are plain objects when every key is
// text and `Map` otherwise, a tag is `Tag`. Encoding is canonical (shortest heads, sorted keys), so
// that what is signed here has the very bytes that the other side expects. What is read is limited in
// length, depth and count, as the other side's `marketplace/domain/cbor.py` limits what it reads.

import { nth, concat, toHex, utf8 } from "./bytes.js";

/**
 * @import { Bytes } from "./bytes.js"
 * @typedef {number | bigint} Whole an integer: BigInt beyond 2^53, so it is reckoned with as BigInt
 * @typedef {null | boolean | Whole | string | Bytes | Tag | unknown[] | Map<unknown, unknown> | {[key: string]: unknown}} Cbor
 * a value; what it holds is looked at in its turn
 */

export class CborError extends Error {}

export class Tag {
  /**
   * @param {Whole} number
   * @param {unknown} value
   */
  constructor(number, value) {
    this.number = number;
    this.value = value;
  }
}

const DEEPEST = 64;
const LONGEST = 1 << 20; // bytes
const MOST_ITEMS = 1 << 14; // values, keys and tags together
const MOST_ENTRIES = 1024; // of one map
const BREAK = 0xff;

class Reader {
  /** @param {Bytes} bytes */
  constructor(bytes) {
    if (bytes.length > LONGEST) throw new CborError("CBOR is too long");
    this.bytes = bytes;
    this.left = MOST_ITEMS;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    this.at = 0;
  }

  /** @param {number} size */
  take(size) {
    if (size > this.bytes.length - this.at) throw new CborError("CBOR ends early");
    this.at += size;
    return this.bytes.subarray(this.at - size, this.at);
  }

  /** @param {number} info */
  number(info) {
    if (info < 24) return info;
    if (info > 27) throw new CborError("a CBOR head is not one");
    const from = this.at;
    this.take(1 << (info - 24));
    if (info === 24) return this.view.getUint8(from);
    if (info === 25) return this.view.getUint16(from);
    if (info === 26) return this.view.getUint32(from);
    return small(this.view.getBigUint64(from));
  }

  /** @param {number} info */
  length(info) {
    const size = this.number(info);
    if (typeof size === "bigint" || size > this.bytes.length) throw new CborError("CBOR ends early");
    return size;
  }

  /** @param {number} major */
  pieces(major) {
    /** @type {Bytes[]} */
    const found = [];
    for (;;) {
      const head = nth(this.take(1), 0);
      if (head === BREAK) return concat(...found);
      if (head >> 5 !== major || (head & 31) === 31) throw new CborError("an open string has strange pieces");
      found.push(this.take(this.length(head & 31)));
    }
  }

  /**
   * @param {number} info
   * @param {number} depth
   * @param {(item: Cbor) => void} each
   */
  items(info, depth, each) {
    if (info !== 31) {
      for (let left = this.length(info); left > 0; left--) each(this.value(depth + 1));
      return;
    }
    while (this.bytes[this.at] !== BREAK) each(this.value(depth + 1));
    this.at += 1;
  }

  /**
   * @param {number} depth
   * @returns {Cbor}
   */
  value(depth = 0) {
    if (depth > DEEPEST) throw new CborError("CBOR is nested too deeply");
    if (--this.left < 0) throw new CborError("CBOR holds too many items");
    const head = nth(this.take(1), 0);
    const [major, info] = [head >> 5, head & 31];
    switch (major) {
      case 0:
        return this.number(info);
      case 1: {
        const n = this.number(info);
        return typeof n === "bigint" ? -1n - n : -1 - n;
      }
      case 2:
        return info === 31 ? this.pieces(2) : this.take(this.length(info)).slice();
      case 3: {
        const text = info === 31 ? this.pieces(3) : this.take(this.length(info));
        return utf8Text(text);
      }
      case 4: {
        /** @type {Cbor[]} */
        const list = [];
        this.items(info, depth, (item) => list.push(item));
        return list;
      }
      case 5:
        return this.map(info, depth);
      case 6:
        return tagged(this.number(info), this.value(depth + 1));
      default:
        return simple(info);
    }
  }

  /**
   * @param {number} info
   * @param {number} depth
   * @returns {Cbor}
   */
  map(info, depth) {
    /** @type {Cbor[]} */
    const found = []; // keys and values in turn
    if (info === 31) this.items(31, depth, (item) => found.push(item));
    else for (let left = 2 * this.length(info); left > 0; left--) found.push(this.value(depth + 1));
    if (found.length % 2) throw new CborError("a map has a key without a value");
    const pairs = Array.from({ length: found.length / 2 }, (_, i) => /** @type {const} */ ([nth(found, 2 * i), nth(found, 2 * i + 1)]));
    if (pairs.length > MOST_ENTRIES) throw new CborError("a map has too many entries");
    const texts = pairs.every(([k]) => typeof k === "string");
    const names = new Set(pairs.map(([k]) => (k instanceof Uint8Array ? `h${toHex(k)}` : k)));
    if (names.size !== pairs.length) throw new CborError("a map has one key twice");
    return texts && pairs.length ? Object.fromEntries(pairs) : new Map(pairs);
  }
}

/** @type {(info: number) => Cbor} */
function simple(info) {
  if (info === 20) return false;
  if (info === 21) return true;
  if (info === 22) return null;
  throw new CborError("floats, simple values and a stray break have no place here");
}

/** @type {(bytes: Bytes) => string} */
function utf8Text(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new CborError("text is not UTF-8");
  }
}

/** @type {(n: bigint) => Whole} */
const small = (n) => (n <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(n) : n);

/** @type {(number: Whole, value: Cbor) => Cbor} */
function tagged(number, value) {
  if ((number === 2 || number === 3) && value instanceof Uint8Array) {
    const n = BigInt(`0x0${toHex(value)}`);
    return small(number === 2 ? n : -1n - n);
  }
  return new Tag(number, value);
}

/**
 * The one value of *bytes*; CborError for anything else.
 * @param {Bytes} bytes
 */
export function decode(bytes) {
  const reader = new Reader(bytes);
  const value = reader.value();
  if (reader.at !== bytes.length) throw new CborError("bytes follow the value");
  return value;
}

/**
 * The top-level array's items as their exact bytes: what a wallet signs must never be re-encoded.
 * @param {Bytes} bytes
 */
export function rawItems(bytes) {
  const reader = new Reader(bytes);
  const head = nth(reader.take(1), 0);
  if (head >> 5 !== 4 || (head & 31) === 31) throw new CborError("not an array");
  const found = [];
  for (let left = reader.length(head & 31); left > 0; left--) {
    const from = reader.at;
    reader.value(1);
    found.push(bytes.slice(from, reader.at));
  }
  if (reader.at !== bytes.length) throw new CborError("bytes follow the value");
  return found;
}

/** @type {(major: number, n: Whole) => Bytes} */
function headOf(major, n) {
  const value = BigInt(n);
  if (value < 24n) return Uint8Array.of((major << 5) | Number(value));
  for (const code of [24, 25, 26, 27]) {
    const size = 1 << (code - 24);
    if (value < 1n << BigInt(8 * size)) {
      const out = new Uint8Array(1 + size);
      out[0] = (major << 5) | code;
      for (let i = 0; i < size; i++) out[size - i] = Number((value >> BigInt(8 * i)) & 255n);
      return out;
    }
  }
  throw new CborError("an integer above 64 bits");
}

/** @type {(a: Bytes, b: Bytes) => number} */
const order = (a, b) => a.length - b.length || (toHex(a) < toHex(b) ? -1 : 1);

/**
 * *value* as canonical CBOR; undefined, floats and functions are refused.
 * @param {unknown} value
 * @returns {Bytes}
 */
export function encode(value) {
  if (value === null) return Uint8Array.of(0xf6);
  if (typeof value === "boolean") return Uint8Array.of(value ? 0xf5 : 0xf4);
  if (typeof value === "bigint" || (typeof value === "number" && Number.isInteger(value))) {
    return value >= 0 ? headOf(0, value) : headOf(1, -1n - BigInt(value));
  }
  if (typeof value === "string") {
    const text = utf8(value);
    return concat(headOf(3, text.length), text);
  }
  if (value instanceof Uint8Array) return concat(headOf(2, value.length), value);
  if (Array.isArray(value)) return concat(headOf(4, value.length), ...value.map(encode));
  if (value instanceof Tag) return concat(headOf(6, value.number), encode(value.value));
  const pairs = value instanceof Map ? [...value] : isPlain(value) ? Object.entries(value) : null;
  if (pairs === null) throw new CborError(`${typeof value} cannot be encoded`);
  const coded = pairs.map(([k, v]) => /** @type {const} */ ([encode(k), encode(v)])).sort(([a], [b]) => order(a, b));
  return concat(headOf(5, coded.length), ...coded.flat());
}

/** @type {(value: unknown) => value is {[key: string]: unknown}} */
const isPlain = (value) => typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype;
