// An address as its text (BIP-173, as CIP-19 uses it): how a chain's face is asked for it.

import { utf8 } from "./bytes.js";

/** @import { Bytes } from "./bytes.js" */

const LETTERS = "qpzry9x8gf2tvdw0s3jn54khce6mua7l";
const STEPS = [0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd, 0x2a1462b3];

/** @type {(words: number[]) => number} */
function remainder(words) {
  let sum = 1;
  for (const word of words) {
    const top = sum >>> 25;
    sum = ((sum & 0x1ffffff) << 5) ^ word;
    for (const [bit, step] of STEPS.entries()) if ((top >>> bit) & 1) sum ^= step;
  }
  return sum;
}

/** @type {(bytes: Bytes) => number[]} */
function fives(bytes) {
  /** @type {number[]} */
  const words = [];
  let [held, bits] = [0, 0];
  for (const byte of bytes) {
    [held, bits] = [((held << 8) | byte) & 0xfff, bits + 8];
    for (; bits >= 5; bits -= 5) words.push((held >> (bits - 5)) & 31);
  }
  if (bits) words.push((held << (5 - bits)) & 31);
  return words;
}

/**
 * `addr_test1…` of an address's bytes.
 * @param {Bytes} address
 */
export function addressText(address) {
  const prefix = (address[0] ?? 0) & 1 ? "addr" : "addr_test";
  const letters = [...utf8(prefix)];
  const spread = [...letters.map((letter) => letter >> 5), 0, ...letters.map((letter) => letter & 31)];
  const words = fives(address);
  const check = remainder([...spread, ...words, 0, 0, 0, 0, 0, 0]) ^ 1;
  const all = [...words, ...[25, 20, 15, 10, 5, 0].map((shift) => (check >>> shift) & 31)];
  return `${prefix}1${all.map((word) => LETTERS[word]).join("")}`;
}
