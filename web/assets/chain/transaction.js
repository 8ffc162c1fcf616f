// A transaction and its outputs, read from their own bytes: in the one plain form that this page takes, and
// nothing in it believed to be of a type that it is not. What it may do is judged in judge.js.

import { blake2b } from "../crypto/blake2b.js";
import { nth, toHex } from "../crypto/bytes.js";
import { decode, rawItems, Tag } from "../crypto/cbor.js";

/** @import { Bytes } from "../crypto/bytes.js" */

/**
 * @typedef {object} Output
 * @property {Bytes} address
 * @property {bigint} lovelace
 * @property {boolean} tokens whether it holds anything but ADA
 * @property {boolean} strange a script, a datum's hash, anything beside
 * @property {Bytes | null} datum
 */

/**
 * @typedef {object} Tx
 * @property {string} id
 * @property {Map<unknown, unknown>} body
 * @property {string[]} inputs `txid#index`
 * @property {Map<unknown, unknown>} witnesses
 * @property {Output[]} outputs
 * @property {bigint} fee
 * @property {unknown[]} fields keys of the body
 */

/** @type {unknown[]} */
const OUTPUT = [0, 1, 2]; // keys of an output: address, value, datum

/** @type {(value: unknown) => bigint} */
export function big(value) {
  if (typeof value !== "bigint" && typeof value !== "number") throw new Error("no number");
  return BigInt(value);
}

/** @type {(value: unknown) => Map<unknown, unknown>} */
export function theMap(value) {
  if (!(value instanceof Map)) throw new Error("no map");
  return value;
}

/** @type {(value?: unknown) => Map<unknown, unknown>} */
export const asMap = (value = new Map()) => theMap(value);

/** @type {(value?: unknown) => unknown[]} */
export function items(value = []) {
  const list = value instanceof Tag && value.number === 258 ? value.value : value;
  if (!Array.isArray(list)) throw new Error("no list");
  return list;
}

/** @type {(value: unknown, length: number) => unknown[]} */
export function row(value, length) {
  if (!Array.isArray(value) || value.length !== length) throw new Error("no row");
  return value;
}

/** @type {(value: unknown) => string} */
export function refOf(value) {
  const [id, index] = row(value, 2);
  if (!(id instanceof Uint8Array) || id.length !== 32 || typeof index !== "number" || index < 0) throw new Error("no input");
  return `${toHex(id)}#${index}`;
}

/**
 * Whether every head of *bytes* is in its shortest form and of known length, and no map has a key twice: one
 * way to write, and to read, each thing.
 * @type {(bytes: Bytes) => boolean}
 */
const isPlain = (bytes) => endOf(bytes, 0, 0) === bytes.length;

/**
 * Where the plain item at *at* ends; null for any other.
 * @type {(bytes: Bytes, at: number, depth: number) => number | null}
 */
function endOf(bytes, at, depth) {
  const head = depth > 32 ? null : plainHead(bytes, at);
  if (!head) return null;
  const { major, n, end } = head;
  if (major === 7 || major <= 1) return end;
  if (major === 6) return endOf(bytes, end, depth + 1);
  if (n > BigInt(bytes.length)) return null;
  if (major > 3) return endOfAll(bytes, end, depth + 1, Number(n), major === 5);
  return end + Number(n) <= bytes.length ? end + Number(n) : null;
}

/**
 * Where *count* items end, or as many pairs of a key and a value.
 * @type {(bytes: Bytes, begun: number, depth: number, count: number, pairs: boolean) => number | null}
 */
function endOfAll(bytes, begun, depth, count, pairs) {
  const keys = new Set();
  let at = begun;
  for (let turn = 0; turn < count; turn++) {
    const key = endOf(bytes, at, depth);
    const end = pairs && key !== null ? endOf(bytes, key, depth) : key;
    if (key === null || end === null) return null;
    if (pairs) keys.add(toHex(bytes.subarray(at, key)));
    at = end;
  }
  return pairs && keys.size !== count ? null : at;
}

/**
 * A head in its shortest form: its major type, its number, and where it ends.
 * @type {(bytes: Bytes, at: number) => {major: number, n: bigint, end: number} | null}
 */
function plainHead(bytes, at) {
  if (at >= bytes.length) return null;
  const [major, info] = [nth(bytes, at) >> 5, nth(bytes, at) & 31];
  if (major === 7) return info >= 20 && info <= 22 ? { major, n: 0n, end: at + 1 } : null;
  if (info < 24) return { major, n: BigInt(info), end: at + 1 };
  const size = 1 << (info - 24);
  const end = at + 1 + size;
  if (info > 27 || end > bytes.length) return null;
  const n = BigInt(`0x${toHex(bytes.subarray(at + 1, end))}`);
  return n < (size === 1 ? 24n : 1n << BigInt(4 * size)) ? null : { major, n, end };
}

/** @type {(value: unknown) => Bytes} */
export function octets(value) {
  if (!(value instanceof Uint8Array)) throw new Error("no bytes");
  return new Uint8Array(value);
}

/** @type {(value: unknown) => Bytes} */
function encoded(value) {
  if (!(value instanceof Tag && value.number === 24)) throw new Error("no encoded data");
  return octets(value.value);
}

/** An output as a transaction has it, in either of its forms. */
export function readOutput(/** @type {unknown} */ output) {
  const old = Array.isArray(output); // of the ledger before Babbage
  const parts = old ? new Map([...output.entries()].slice(0, 2)) : theMap(output);
  const beside = old ? output.length > 2 : [...parts.keys()].some((key) => !OUTPUT.includes(key));
  const [address, value, option] = [octets(parts.get(0)), parts.get(1), parts.get(2)];
  const lovelace = big(Array.isArray(value) ? value[0] : value);
  const [kind, data] = option === undefined ? [] : row(option, 2);
  const inline = kind === 1 ? encoded(data) : null;
  if (lovelace < 0n) throw new Error("no output");
  /** @type {Output} */
  const found = { address, lovelace, tokens: Array.isArray(value), strange: beside || Boolean(option && !inline), datum: inline };
  return found;
}

/**
 * The parts of an unsigned transaction; throws for anything that is none in its plain form.
 * @param {Bytes} bytes
 * @returns {Tx}
 */
export function readTx(bytes) {
  const parts = rawItems(bytes);
  const [raw, witnesses, valid, attached] = parts;
  if (parts.length !== 4 || !raw || !witnesses || !valid || !attached || !parts.every(isPlain)) throw new Error("four plain parts");
  const body = decode(raw);
  if (!(body instanceof Map) || valid[0] !== 0xf5 || attached[0] !== 0xf6) throw new Error("a valid body, nothing attached");
  const inputs = items(body.get(0)).map(refOf);
  if (new Set(inputs).size !== inputs.length) throw new Error("an input twice");
  return {
    id: toHex(blake2b(raw)), body, inputs, witnesses: theMap(decode(witnesses)),
    outputs: items(body.get(1)).map(readOutput), fee: big(body.get(2)), fields: [...body.keys()],
  };
}

/**
 * What a transaction refers to, `txid#index`; nothing for one that cannot be read.
 * @param {Bytes} bytes
 */
export function referencesOf(bytes) {
  try {
    return items(readTx(bytes).body.get(18)).map(refOf).slice(0, 8);
  } catch {
    return [];
  }
}
