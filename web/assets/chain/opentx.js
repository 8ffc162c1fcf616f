// What is read of a wallet's outputs, and what a channel keeps. What a transaction may do is judged in judge.js.

import { fromHex } from "../crypto/bytes.js";
import { decode, encode, Tag } from "../crypto/cbor.js";
import { readOutput, refOf, row } from "./transaction.js";

/**
 * @import { Bytes } from "../crypto/bytes.js"
 * @import { Whole } from "../crypto/cbor.js"
 * @import { Output } from "./transaction.js"
 * @import { Consts } from "../money/records.js"
 */

/**
 * What a wallet's `getUtxos` says: its outputs by `txid#index`.
 * @param {string[] | null} hexes
 * @returns {Map<string, Output>}
 */
export function readUtxos(hexes) {
  /** @type {Map<string, Output>} */
  const found = new Map();
  for (const hex of hexes ?? []) {
    const [ref, output] = row(decode(fromHex(hex)), 2);
    found.set(refOf(ref), readOutput(output));
  }
  return found;
}

/**
 * The least lovelace that stays in a channel so that Close and the refund always can be paid.
 * @param {Bytes} address
 * @param {Consts} terms
 * @param {Whole} perByte
 */
export function reserveOf(address, terms, perByte) {
  const wide = 2n ** 63n - 1n;
  const consts = [terms.session_vk, terms.adapter_vkh, terms.payout, terms.consumer_vkh, terms.close_period_ms, terms.fee_bps];
  const datum = encode(new Tag(122, [consts, wide, wide]));
  const output = new Map().set(0, address).set(1, 2n ** 40n).set(2, [1, new Tag(24, datum)]);
  return BigInt(160 + encode(output).length) * BigInt(perByte);
}
