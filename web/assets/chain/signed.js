// A transaction with the signatures of its wallet: the bytes that are handed to a provider which serves
// before the first block (docs/decisions/0115).

import { concat } from "../crypto/bytes.js";
import { decode, encode, rawItems } from "../crypto/cbor.js";
import { items, octets, row, theMap } from "./transaction.js";

/** @import { Bytes } from "../crypto/bytes.js" */

const [FOUR, KEYS] = [Uint8Array.of(0x84), 0]; // an array of four; the signatures' place in a witness set

/**
 * *tx* with the signatures of *witness* (what CIP-30's `signTx` gives) and nothing else beside its own body.
 * @param {Bytes} tx unsigned
 * @param {Bytes} witness
 * @returns {Bytes}
 */
export function withSignatures(tx, witness) {
  const [body, , valid, attached] = rawItems(tx);
  if (!body || !valid || !attached) throw new Error("no transaction");
  const signatures = items(theMap(decode(witness)).get(KEYS)).map((pair) => row(pair, 2).map(octets));
  return concat(FOUR, body, encode(new Map().set(KEYS, signatures)), valid, attached);
}
