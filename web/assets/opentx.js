// What is read of a wallet's outputs, and what a channel keeps. What a transaction may do is judged in judge.js.

import { fromHex, toHex } from "./bytes.js";
import { decode, encode, Tag } from "./cbor.js";
import { readOutput } from "./judge.js";

/** What a wallet's `getUtxos` says: its outputs by `txid#index`. */
export function readUtxos(hexes) {
  const found = new Map();
  for (const hex of hexes ?? []) {
    const [[id, index], output] = decode(fromHex(hex));
    found.set(`${toHex(id)}#${index}`, readOutput(output));
  }
  return found;
}

/** The least lovelace that stays in a channel so that Close and the refund always can be paid. */
export function reserveOf(address, terms, perByte) {
  const wide = 2n ** 63n - 1n;
  const consts = [terms.session_vk, terms.adapter_vkh, terms.payout, terms.consumer_vkh, terms.close_period_ms, terms.fee_bps];
  const datum = encode(new Tag(122, [consts, wide, wide]));
  const output = new Map([[0, address], [1, 2n ** 40n], [2, [1, new Tag(24, datum)]]]);
  return BigInt(160 + encode(output).length) * BigInt(perByte);
}
