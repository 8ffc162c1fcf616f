// JSON of which there is only one reading: two programs that accept a text read the same from it.
//
// Refused beside what is no JSON (RFC 8259): a key that stands twice in one object, a number with a
// fraction or an exponent or of more than 20 characters, nesting beyond 32, anything but UTF-8.
// marketplace/domain/strictjson.py is the same door. Integers beyond 2^53 are BigInt.

/** @typedef {null | boolean | number | bigint | string | unknown[] | {[key: string]: unknown}} Json */

const MOST_DEPTH = 32;
const MOST_DIGITS = 20;
const SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?(?:0|[1-9][0-9]*)/y;
// eslint-disable-next-line no-control-regex -- JSON's texts hold none of them
const PLAIN = /[^"\\\u0000-\u001f]*/y;
const ESCAPE = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y;
/** @type {[string, Json][]} */
const WORDS = [["true", true], ["false", false], ["null", null]];

class Reader {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
    this.at = 0;
  }

  /** @param {RegExp} pattern */
  match(pattern) {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text)?.[0] ?? "";
    this.at += found.length;
    return found;
  }

  next() {
    this.match(SPACE);
    return this.text[this.at];
  }

  /** @param {string} letter */
  takes(letter) {
    if (this.next() !== letter) return false;
    this.at += 1;
    return true;
  }

  /** @param {string} letter */
  wants(letter) {
    if (!this.takes(letter)) throw new Error(`not JSON: expected ${letter} at ${this.at}`);
  }

  /**
   * @param {number} depth
   * @returns {Json}
   */
  value(depth) {
    const first = this.next();
    if (first === "{") return this.object(depth + 1);
    if (first === "[") return this.list(depth + 1);
    if (first === '"') return this.string();
    for (const [word, value] of WORDS) {
      if (this.text.startsWith(word, this.at)) {
        this.at += word.length;
        return value;
      }
    }
    return this.number();
  }

  number() {
    const digits = this.match(NUMBER);
    const after = this.text[this.at];
    if (!digits || digits.length > MOST_DIGITS || after === "." || after === "e" || after === "E") {
      throw new Error(`not a whole number of at most ${MOST_DIGITS} characters at ${this.at}`);
    }
    const n = BigInt(digits);
    return Number.isSafeInteger(Number(n)) ? Number(n) : n;
  }

  /** @returns {string} */
  string() {
    const from = this.at;
    this.at += 1;
    for (;;) {
      this.match(PLAIN);
      if (this.text[this.at] === '"') {
        this.at += 1;
        return JSON.parse(this.text.slice(from, this.at));
      }
      if (!this.match(ESCAPE)) throw new Error(`not JSON: a text does not end at ${this.at}`);
    }
  }

  /**
   * @param {number} depth
   * @returns {Json}
   */
  list(depth) {
    deep(depth);
    this.at += 1;
    /** @type {Json[]} */
    const found = [];
    if (this.takes("]")) return found;
    for (;;) {
      found.push(this.value(depth));
      if (this.takes("]")) return found;
      this.wants(",");
    }
  }

  /**
   * @param {number} depth
   * @returns {Json}
   */
  object(depth) {
    deep(depth);
    this.at += 1;
    /** @type {Map<string, Json>} */
    const found = new Map();
    if (this.takes("}")) return Object.fromEntries(found);
    for (;;) {
      if (this.next() !== '"') throw new Error(`not JSON: expected a key at ${this.at}`);
      const key = this.string();
      if (found.has(key)) throw new Error(`the key ${JSON.stringify(key).slice(0, 80)} stands twice in one object`);
      this.wants(":");
      found.set(key, this.value(depth));
      if (this.takes("}")) return Object.fromEntries(found);
      this.wants(",");
    }
  }
}

/** @type {(depth: number) => void} */
function deep(depth) {
  if (depth > MOST_DEPTH) throw new Error(`nested more than ${MOST_DEPTH} deep`);
}

/**
 * The one value of *text* (a string, or UTF-8 bytes); throws for anything else.
 * @param {string | Uint8Array<ArrayBuffer>} text
 */
export function parse(text) {
  const given = typeof text === "string" ? text : new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(text);
  const reader = new Reader(given);
  const value = reader.value(0);
  if (reader.next() !== undefined) throw new Error(`not JSON: something follows at ${reader.at}`);
  return value;
}

/**
 * The reverse, for a file: JSON.stringify knows no BigInt.
 * @param {unknown} value
 * @returns {string}
 */
export function write(value) {
  if (typeof value === "bigint") return String(value);
  if (Array.isArray(value)) return `[${value.map(write).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  return `{${Object.entries(value).map(([k, v]) => `${JSON.stringify(k)}:${write(v)}`).join(",")}}`;
}
