// Ed25519 keys of 32 bytes of seed, for WebCrypto; and what a purse derives from its own.

import { createHmac, createPrivateKey, createPublicKey } from "node:crypto";

import { blake2b } from "../../assets/crypto/blake2b.js";
import { concat, fromHex, type Bytes } from "../../assets/crypto/bytes.js";

const PKCS8 = fromHex("302e020100300506032b657004220420"); // RFC 8410: what stands before the seed

/** A key whose private half nobody can read any more. */
export interface Signer {
  verifyKey: Bytes;
  privateKey: CryptoKey;
}

/** The public key of *seed*. */
export function verifyKeyOf(seed: Bytes): Bytes {
  const key = createPrivateKey({ key: Buffer.from(concat(PKCS8, seed)), format: "der", type: "pkcs8" });
  return new Uint8Array(createPublicKey(key).export({ format: "der", type: "spki" }).subarray(-32));
}

export async function signerOf(seed: Bytes): Promise<Signer> {
  const privateKey = await crypto.subtle.importKey("pkcs8", concat(PKCS8, seed), "Ed25519", false, ["sign"]);
  return { verifyKey: verifyKeyOf(seed), privateKey };
}

/** How Cardano names a key: 28 bytes. */
export const keyHash = (verifyKey: Bytes): Bytes => blake2b(verifyKey, 28);

/** The stake part that belongs to a purse's payment key: as marketplace/client/wallet/purse.py derives it. */
export function stakeHash(seed: Bytes): Bytes {
  const secret = createHmac("sha256", new Uint8Array(32)).update(seed).digest();
  const derived = createHmac("sha256", secret).update("tally/purse-stake/v1\u0001").digest();
  return keyHash(verifyKeyOf(new Uint8Array(derived)));
}
