// CBOR (RFC 8949): what Cardano and Tally's frames use, and nothing more.
//
// Integers beyond 2^53 are BigInt, bytes are Uint8Array, text maps are plain objects when every key is
// text and `Map` otherwise, a tag is `Tag`. Encoding is canonical (shortest heads, sorted keys), so
// that what is signed here has the very bytes that the other side expects. What is read is limited in
// length, depth and count, as the other side's `marketplace/domain/cbor.py` limits what it reads.

import { concat, toHex, utf8 } from "./bytes.js";

export class CborError extends Error {}

export class Tag {
  constructor(number, value) {
    this.number = number;
    this.value = value;
  }
}

const DEEPEST = 64;
const LONGEST = 1 << 20; // bytes
const MOST_ITEMS = 1 << 14; // values, keys and tags together
const MOST_ENTRIES = 1024; // of one map
const BREAK = Symbol("break");

class Reader {
  constructor(bytes) {
    if (bytes.length > LONGEST) throw new CborError("CBOR is too long");
    this.bytes = bytes;
    this.left = MOST_ITEMS;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    this.at = 0;
  }

  take(size) {
    if (size > this.bytes.length - this.at) throw new CborError("CBOR ends early");
    this.at += size;
    return this.bytes.subarray(this.at - size, this.at);
  }

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

  length(info) {
    const size = this.number(info);
    if (typeof size === "bigint" || size > this.bytes.length) throw new CborError("CBOR ends early");
    return size;
  }

  pieces(major) {
    const found = [];
    for (;;) {
      const head = this.take(1)[0];
      if (head === 0xff) return concat(...found);
      if (head >> 5 !== major || (head & 31) === 31) throw new CborError("an open string has strange pieces");
      found.push(this.take(this.length(head & 31)));
    }
  }

  items(info, depth, each) {
    if (info !== 31) {
      for (let left = this.length(info); left > 0; left--) each(this.value(depth + 1));
      return;
    }
    for (let item = this.value(depth + 1, true); item !== BREAK; item = this.value(depth + 1, true)) each(item);
  }

  value(depth = 0, mayBreak = false) {
    if (depth > DEEPEST) throw new CborError("CBOR is nested too deeply");
    if (--this.left < 0) throw new CborError("CBOR holds too many items");
    const head = this.take(1)[0];
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
        const list = [];
        this.items(info, depth, (item) => list.push(item));
        return list;
      }
      case 5:
        return this.map(info, depth);
      case 6:
        return tagged(this.number(info), this.value(depth + 1));
      default:
        return this.simple(info, mayBreak);
    }
  }

  map(info, depth) {
    const pairs = [];
    let key;
    let half = false;
    const each = (item) => {
      if (half) pairs.push([key, item]);
      else key = item;
      half = !half;
    };
    if (info === 31) this.items(31, depth, each);
    else for (let left = 2 * this.length(info); left > 0; left--) each(this.value(depth + 1));
    if (half) throw new CborError("a map has a key without a value");
    if (pairs.length > MOST_ENTRIES) throw new CborError("a map has too many entries");
    const texts = pairs.every(([k]) => typeof k === "string");
    const names = new Set(pairs.map(([k]) => (k instanceof Uint8Array ? `h${toHex(k)}` : k)));
    if (names.size !== pairs.length) throw new CborError("a map has one key twice");
    return texts && pairs.length ? Object.fromEntries(pairs) : new Map(pairs);
  }

  simple(info, mayBreak) {
    if (info === 31 && mayBreak) return BREAK;
    if (info === 20) return false;
    if (info === 21) return true;
    if (info === 22) return null;
    throw new CborError("floats and simple values have no place here");
  }
}

function utf8Text(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new CborError("text is not UTF-8");
  }
}

const small = (n) => (n <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(n) : n);

function tagged(number, value) {
  if ((number === 2 || number === 3) && value instanceof Uint8Array) {
    const n = BigInt(`0x0${toHex(value)}`);
    return small(number === 2 ? n : -1n - n);
  }
  return new Tag(number, value);
}

/** The one value of *bytes*; CborError for anything else. */
export function decode(bytes) {
  const reader = new Reader(bytes);
  const value = reader.value();
  if (reader.at !== bytes.length) throw new CborError("bytes follow the value");
  return value;
}

/** The top-level array's items as their exact bytes: what a wallet signs must never be re-encoded. */
export function rawItems(bytes) {
  const reader = new Reader(bytes);
  const head = reader.take(1)[0];
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

function head(major, n) {
  const value = BigInt(n);
  if (value < 24n) return Uint8Array.of((major << 5) | Number(value));
  for (const [code, size] of [[24, 1], [25, 2], [26, 4], [27, 8]]) {
    if (value < 1n << BigInt(8 * size)) {
      const out = new Uint8Array(1 + size);
      out[0] = (major << 5) | code;
      for (let i = 0; i < size; i++) out[size - i] = Number((value >> BigInt(8 * i)) & 255n);
      return out;
    }
  }
  throw new CborError("an integer above 64 bits");
}

const order = (a, b) => a.length - b.length || (toHex(a) < toHex(b) ? -1 : 1);

/** *value* as canonical CBOR; undefined, floats and functions are refused. */
export function encode(value) {
  if (value === null) return Uint8Array.of(0xf6);
  if (typeof value === "boolean") return Uint8Array.of(value ? 0xf5 : 0xf4);
  if (typeof value === "bigint" || Number.isInteger(value)) {
    return value >= 0 ? head(0, value) : head(1, -1n - BigInt(value));
  }
  if (typeof value === "string") {
    const text = utf8(value);
    return concat(head(3, text.length), text);
  }
  if (value instanceof Uint8Array) return concat(head(2, value.length), value);
  if (Array.isArray(value)) return concat(head(4, value.length), ...value.map(encode));
  if (value instanceof Tag) return concat(head(6, value.number), encode(value.value));
  const pairs = value instanceof Map ? [...value] : isPlain(value) ? Object.entries(value) : null;
  if (pairs === null) throw new CborError(`${typeof value} cannot be encoded`);
  const coded = pairs.map(([k, v]) => [encode(k), encode(v)]).sort(([a], [b]) => order(a, b));
  return concat(head(5, coded.length), ...coded.flat());
}

const isPlain = (value) => typeof value === "object" && Object.getPrototypeOf(value) === Object.prototype;
