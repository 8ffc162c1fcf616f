// BLAKE2b (RFC 7693) without a key, in 64-bit BigInt arithmetic: a few kilobytes at a time is all we hash.

import { nth } from "./bytes.js";

/**
 * @import { Bytes } from "./bytes.js"
 * @typedef {0|1|2|3|4|5|6|7|8|9|10|11|12|13|14|15} Place of a word in the state
 * @typedef {{[place in Place]: bigint}} State
 */

const IV = [
  0x6a09e667f3bcc908n, 0xbb67ae8584caa73bn, 0x3c6ef372fe94f82bn, 0xa54ff53a5f1d36f1n,
  0x510e527fade682d1n, 0x9b05688c2b3e6c1fn, 0x1f83d9abfb41bd6bn, 0x5be0cd19137e2179n,
];
const SIGMA = [
  [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
  [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
  [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
  [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
  [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
  [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
  [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
  [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
  [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
  [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
];
/** @type {[Place, Place, Place, Place][]} */
const LANES = [
  [0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15],
  [0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14],
];
const MASK = 0xffffffffffffffffn;

/** @type {(x: bigint, n: bigint) => bigint} */
const rotate = (x, n) => ((x >> n) | (x << (64n - n))) & MASK;

/**
 * @param {bigint[]} h eight words, changed in place
 * @param {Bytes} block
 * @param {number} counted bytes up to the end of *block*
 * @param {boolean} last
 */
function compress(h, block, counted, last) {
  const view = new DataView(block.buffer, block.byteOffset, 128);
  const m = Array.from({ length: 16 }, (_, i) => view.getBigUint64(i * 8, true));
  const v = /** @type {State} */ (/** @type {unknown} */ ([...h, ...IV])); // eight words and eight words are sixteen
  v[12] ^= BigInt(counted);
  if (last) v[14] ^= MASK;
  for (let round = 0; round < 12; round++) {
    const s = nth(SIGMA, round % 10);
    LANES.forEach(([a, b, c, d], i) => {
      v[a] = (v[a] + v[b] + nth(m, nth(s, 2 * i))) & MASK;
      v[d] = rotate(v[d] ^ v[a], 32n);
      v[c] = (v[c] + v[d]) & MASK;
      v[b] = rotate(v[b] ^ v[c], 24n);
      v[a] = (v[a] + v[b] + nth(m, nth(s, 2 * i + 1))) & MASK;
      v[d] = rotate(v[d] ^ v[a], 16n);
      v[c] = (v[c] + v[d]) & MASK;
      v[b] = rotate(v[b] ^ v[c], 63n);
    });
  }
  LANES.slice(0, 4).forEach(([a, b, c, d]) => {
    h[a] = nth(h, a) ^ v[a] ^ v[c];
    h[b] = nth(h, b) ^ v[b] ^ v[d];
  });
}

/**
 * *size* bytes of BLAKE2b of *data*: 32 for receipts and transactions, 28 for keys and scripts.
 * @param {Bytes} data
 * @param {number} size
 * @returns {Bytes}
 */
export function blake2b(data, size = 32) {
  const h = [...IV];
  h[0] = nth(h, 0) ^ BigInt(0x01010000 ^ size);
  const blocks = Math.max(1, Math.ceil(data.length / 128));
  for (let i = 0; i < blocks; i++) {
    const block = new Uint8Array(128);
    const piece = data.subarray(i * 128, (i + 1) * 128);
    block.set(piece);
    compress(h, block, i * 128 + piece.length, i === blocks - 1);
  }
  const out = new DataView(new ArrayBuffer(64));
  h.forEach((word, i) => out.setBigUint64(i * 8, word, true));
  return new Uint8Array(out.buffer).slice(0, size);
}
