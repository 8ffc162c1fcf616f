// Ed25519 by WebCrypto. Session keys are made non-extractable: no script, ours included, can read them.

import { nth, toHex } from "./bytes.js";

/** @import { Bytes } from "./bytes.js" */

// Points of small order, by y with the sign bit off: under such a key one signature fits every message.
// libsodium, which the market and the provider use, takes none of them, nor a key whose y is p or more.
const SMALL = new Set([
  "0000000000000000000000000000000000000000000000000000000000000000",
  "0100000000000000000000000000000000000000000000000000000000000000",
  "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
  "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
  "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]);
const P = 2n ** 255n - 19n;

/** @type {(bytes: Bytes) => boolean} */
function mainPoint(bytes) {
  const y = Uint8Array.from(bytes);
  y[31] = nth(y, 31) & 127;
  const n = BigInt(`0x${toHex(Uint8Array.from(y).reverse())}`);
  return n < P && !SMALL.has(toHex(y));
}

/**
 * Whether the holder of *verifyKey* signed *message*, as libsodium decides it.
 * @param {Bytes} verifyKey
 * @param {Bytes} message
 * @param {Bytes} signature
 */
export async function verifies(verifyKey, message, signature) {
  if (verifyKey.length !== 32 || signature.length !== 64) return false;
  if (!mainPoint(verifyKey) || !mainPoint(signature.subarray(0, 32))) return false;
  try {
    const key = await crypto.subtle.importKey("raw", verifyKey, "Ed25519", false, ["verify"]);
    return await crypto.subtle.verify("Ed25519", key, signature, message);
  } catch {
    return false; // a key that is no point of the curve signs nothing
  }
}

/** A key pair of which nobody, this page included, can read the private half. */
export async function newKey() {
  const pair = await crypto.subtle.generateKey("Ed25519", false, ["sign", "verify"]);
  const raw = await crypto.subtle.exportKey("raw", pair.publicKey);
  return { privateKey: pair.privateKey, verifyKey: new Uint8Array(raw) };
}

/** @type {(privateKey: CryptoKey, message: Bytes) => Promise<Bytes>} */
export const sign = async (privateKey, message) =>
  new Uint8Array(await crypto.subtle.sign("Ed25519", privateKey, message));

/** @type {(size: number) => Bytes} */
export const random = (size) => crypto.getRandomValues(new Uint8Array(size));
