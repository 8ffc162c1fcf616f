// Secrets in a box that only the provider who signed the terms opens: libsodium's sealed box, to the
// X25519 form of its Ed25519 key (marketplace/domain/keys.py, seal_to). X25519 is WebCrypto's; the
// XSalsa20-Poly1305 of the box is here (https://nacl.cr.yp.to/secretbox.html, RFC 8439 section 2.5),
// and held against libsodium in tests/browser/test_console_secrets.py.

import { blake2b } from "./blake2b.js";
import { concat, nth, same, utf8 } from "./bytes.js";

/**
 * @import { Bytes } from "./bytes.js"
 * @import { Place } from "./blake2b.js"
 * @typedef {Uint32Array<ArrayBuffer> & {[place in Place]: number}} Sixteen words
 * @typedef {{key: CryptoKey, iv: Bytes, data: ArrayBuffer}} Locked values that wait for the provider's key
 */

const P = 2n ** 255n - 19n;
const P1305 = 2n ** 130n - 5n;
const CLAMP = 0x0ffffffc0ffffffc0ffffffc0fffffffn;
/** @type {[number, number, number, number]} */
const SIGMA = [0x61707865, 0x3320646e, 0x79622d32, 0x6b206574]; // "expand 32-byte k"
/** @type {[Place, Place, Place, Place][]} */
const ROUNDS = [
  [0, 4, 8, 12], [5, 9, 13, 1], [10, 14, 2, 6], [15, 3, 7, 11], // columns
  [0, 1, 2, 3], [5, 6, 7, 4], [10, 11, 8, 9], [15, 12, 13, 14], // rows
];

/** @type {(bytes: Bytes) => bigint} */
const number = (bytes) => [...bytes].reduceRight((sum, byte) => (sum << 8n) | BigInt(byte), 0n);
/** @type {(value: bigint, size: number) => Bytes} */
const bytesOf = (value, size) => Uint8Array.from({ length: size }, (_, i) => Number((value >> BigInt(8 * i)) & 255n));

/** @type {(base: bigint, exponent: bigint, modulus: bigint) => bigint} */
function power(base, exponent, modulus) {
  let result = 1n;
  for (let b = base % modulus, e = exponent; e; e >>= 1n, b = (b * b) % modulus) if (e & 1n) result = (result * b) % modulus;
  return result;
}

/**
 * The X25519 form of an Ed25519 key: u = (1 + y) / (1 - y).
 * @param {Bytes} verifyKey
 */
export function toX25519(verifyKey) {
  const y = number(verifyKey) & (2n ** 255n - 1n);
  if (verifyKey.length !== 32 || y >= P || y === 1n) throw new Error("secrets cannot be sealed to this key");
  return bytesOf(((1n + y) * power(P + 1n - y, P - 2n, P)) % P, 32);
}

/** @type {(x: number, n: number) => number} */
const rotate = (x, n) => (x << n) | (x >>> (32 - n));

/**
 * The 20 rounds of Salsa20 over 16 words; *add*: the input is added at the end, as its hash wants.
 * @type {(key: Bytes, input: Bytes, add: boolean) => Sixteen}
 */
function salsa(key, input, add) {
  const [k, n] = [words(key), words(input)];
  const start = Uint32Array.of(SIGMA[0], ...k.subarray(0, 4), SIGMA[1], ...n, SIGMA[2], ...k.subarray(4), SIGMA[3]);
  const x = sixteen(start.slice());
  for (let round = 0; round < 10; round++) {
    for (const [a, b, c, d] of ROUNDS) {
      x[b] ^= rotate(x[a] + x[d], 7);
      x[c] ^= rotate(x[b] + x[a], 9);
      x[d] ^= rotate(x[c] + x[b], 13);
      x[a] ^= rotate(x[d] + x[c], 18);
    }
  }
  return add ? sixteen(x.map((word, i) => word + nth(start, i))) : x;
}

/** @type {(words: Uint32Array<ArrayBuffer>) => Sixteen} */
function sixteen(list) {
  if (list.length !== 16) throw new RangeError("sixteen words are hashed");
  return /** @type {Sixteen} */ (list); // as was just counted
}

/** @type {(bytes: Bytes) => Uint32Array<ArrayBuffer>} */
function words(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  return Uint32Array.from({ length: bytes.length / 4 }, (_, i) => view.getUint32(4 * i, true));
}

/** @type {(list: ArrayLike<number>) => Bytes} */
function unwords(list) {
  const view = new DataView(new ArrayBuffer(4 * list.length));
  Array.from(list).forEach((word, i) => view.setUint32(4 * i, word, true));
  return new Uint8Array(view.buffer);
}

/** @type {(key: Bytes, input: Bytes) => Bytes} */
function hsalsa(key, input) {
  const x = salsa(key, input, false);
  return unwords([x[0], x[5], x[10], x[15], x[6], x[7], x[8], x[9]]);
}

/**
 * *size* bytes of the XSalsa20 stream of a 32-byte key and a 24-byte nonce.
 * @type {(key: Bytes, nonce: Bytes, size: number) => Bytes}
 */
function stream(key, nonce, size) {
  const inner = hsalsa(key, nonce.subarray(0, 16));
  const blocks = Array.from({ length: Math.ceil(size / 64) }, (_, i) => unwords(salsa(inner, concat(nonce.subarray(16), bytesOf(BigInt(i), 8)), true)));
  return concat(...blocks).subarray(0, size);
}

/** @type {(key: Bytes, message: Bytes) => Bytes} */
function poly1305(key, message) {
  const [r, s] = [number(key.subarray(0, 16)) & CLAMP, number(key.subarray(16, 32))];
  let sum = 0n;
  for (let at = 0; at < message.length; at += 16) {
    const piece = message.subarray(at, at + 16);
    sum = ((sum + number(piece) + (1n << BigInt(8 * piece.length))) * r) % P1305;
  }
  return bytesOf(sum + s, 16);
}

/**
 * Tag and ciphertext: NaCl's crypto_secretbox.
 * @param {Bytes} key
 * @param {Bytes} nonce
 * @param {Bytes} message
 */
export function secretbox(key, nonce, message) {
  const pad = stream(key, nonce, 32 + message.length);
  const hidden = message.map((byte, i) => byte ^ nth(pad, 32 + i));
  return concat(poly1305(pad.subarray(0, 32), hidden), hidden);
}

/**
 * The message of {@link secretbox}'s box; null for one that was not made with this key and nonce.
 * @param {Bytes} key
 * @param {Bytes} nonce
 * @param {Bytes} box
 */
export function unbox(key, nonce, box) {
  if (nonce.length !== 24 || box.length < 16) return null;
  const [tag, hidden] = [box.subarray(0, 16), box.subarray(16)];
  const pad = stream(key, nonce, 32 + hidden.length);
  return same(poly1305(pad.subarray(0, 32), hidden), tag) ? hidden.map((byte, i) => byte ^ nth(pad, 32 + i)) : null;
}

/**
 * *text* sealed to the holder of the Ed25519 key *verifyKey*.
 * @param {Bytes} verifyKey
 * @param {string} text
 */
export async function sealTo(verifyKey, text) {
  const theirs = toX25519(verifyKey);
  // TypeScript's list of algorithms lacks this one, of which the browser makes a pair.
  const once = /** @type {CryptoKeyPair} */ (await crypto.subtle.generateKey({ name: "X25519" }, false, ["deriveBits"]));
  const mine = new Uint8Array(await crypto.subtle.exportKey("raw", once.publicKey));
  const other = await crypto.subtle.importKey("raw", theirs, "X25519", false, []);
  const shared = new Uint8Array(await crypto.subtle.deriveBits({ name: "X25519", public: other }, once.privateKey, 256));
  const key = hsalsa(shared, new Uint8Array(16));
  return concat(mine, secretbox(key, blake2b(concat(mine, theirs), 24), utf8(text)));
}

/**
 * Values that wait for the provider's key, unreadable on this machine's disk: AES-GCM under a key that
 * the browser gives to no script. They are forgotten once they are sealed.
 * @param {{[name: string]: string}} values
 * @returns {Promise<Locked>}
 */
export async function lock(values) {
  const key = await crypto.subtle.generateKey({ name: "AES-GCM", length: 256 }, false, ["encrypt", "decrypt"]);
  const iv = crypto.getRandomValues(new Uint8Array(12));
  return { key, iv, data: await crypto.subtle.encrypt({ name: "AES-GCM", iv }, key, utf8(JSON.stringify(values))) };
}

/**
 * @param {Locked} locked
 * @returns {Promise<{[name: string]: string}>}
 */
export async function unlock({ key, iv, data }) {
  return JSON.parse(new TextDecoder().decode(await crypto.subtle.decrypt({ name: "AES-GCM", iv }, key, data)));
}
