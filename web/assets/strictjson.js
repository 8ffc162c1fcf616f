// JSON of which there is only one reading: two programs that accept a text read the same from it.
//
// Refused beside what is no JSON (RFC 8259): a key that stands twice in one object, a number with a
// fraction or an exponent or of more than 20 characters, nesting beyond 32, anything but UTF-8.
// marketplace/domain/strictjson.py is the same door. Integers beyond 2^53 are BigInt.

const MOST_DEPTH = 32;
const MOST_DIGITS = 20;
const SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?(?:0|[1-9][0-9]*)/y;
const PLAIN = /[^"\\\u0000-\u001f]*/y;
const ESCAPE = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y;
const WORDS = [["true", true], ["false", false], ["null", null]];

class Reader {
  constructor(text) {
    this.text = text;
    this.at = 0;
  }

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

  takes(letter) {
    if (this.next() !== letter) return false;
    this.at += 1;
    return true;
  }

  wants(letter) {
    if (!this.takes(letter)) throw new Error(`not JSON: expected ${letter} at ${this.at}`);
  }

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

  list(depth) {
    deep(depth);
    this.at += 1;
    const found = [];
    if (this.takes("]")) return found;
    for (;;) {
      found.push(this.value(depth));
      if (this.takes("]")) return found;
      this.wants(",");
    }
  }

  object(depth) {
    deep(depth);
    this.at += 1;
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

function deep(depth) {
  if (depth > MOST_DEPTH) throw new Error(`nested more than ${MOST_DEPTH} deep`);
}

/** The one value of *text* (a string, or UTF-8 bytes); throws for anything else. */
export function parse(text) {
  const given = typeof text === "string" ? text : new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(text);
  const reader = new Reader(given);
  const value = reader.value(0);
  if (reader.next() !== undefined) throw new Error(`not JSON: something follows at ${reader.at}`);
  return value;
}

/** The reverse, for a file: JSON.stringify knows no BigInt. */
export function write(value) {
  if (typeof value === "bigint") return String(value);
  if (Array.isArray(value)) return `[${value.map(write).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  return `{${Object.entries(value).map(([k, v]) => `${JSON.stringify(k)}:${write(v)}`).join(",")}}`;
}
