// Bytes and hex.

/** @typedef {Uint8Array<ArrayBuffer>} Bytes not of shared memory, which WebCrypto would not take */

/** @type {(...parts: Uint8Array[]) => Bytes} */
export const concat = (...parts) => {
  const out = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
};

/** @type {(bytes: ArrayLike<number>) => string} */
export const toHex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");

/**
 * Bytes of a hex text; throws for anything else.
 * @type {(text: unknown) => Bytes}
 */
export const fromHex = (text) => {
  if (typeof text !== "string" || text.length % 2 || /[^0-9a-fA-F]/.test(text)) throw new Error("not hex");
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
};

/** @type {(a: Uint8Array, b: Uint8Array) => boolean} */
export const same = (a, b) => a.length === b.length && a.every((byte, i) => byte === b[i]);

/** @type {(text: string) => Bytes} */
export const utf8 = (text) => new TextEncoder().encode(text);

/**
 * What stands at *index*: where a list is shorter than its maker says, that is an error, not `undefined`.
 * @template T
 * @param {ArrayLike<T>} list
 * @param {number} index
 * @returns {T}
 */
export function nth(list, index) {
  const found = list[index];
  if (found === undefined) throw new RangeError(`nothing stands at ${index}`);
  return found;
}

/** What is said of whatever was thrown. */
export const messageOf = (/** @type {unknown} */ thrown) => (thrown instanceof Error ? thrown.message : String(thrown));
