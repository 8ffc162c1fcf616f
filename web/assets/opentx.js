// What is read of channels and of a wallet's outputs. What a transaction may do is judged in judge.js.

import { concat, fromHex, toHex } from "./bytes.js";
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

const constr = (value, number) => (value instanceof Tag && value.number === 121 + number ? value.value : null);

/** `{open, claimed, expireAt, consts}` of a channel's datum; null for any other. */
export function readStage(bytes) {
  try {
    const value = decode(bytes);
    const [open, closing] = [constr(value, 0), constr(value, 1)];
    const found = open ?? closing;
    if (!Array.isArray(found) || !Array.isArray(found[0]) || found[0].length !== 6) return null;
    const [session_vk, adapter_vkh, payout, consumer_vkh, close_period_ms, fee_bps] = found[0];
    const consts = { session_vk, adapter_vkh, payout, consumer_vkh, close_period_ms, fee_bps };
    return { open: Boolean(open), claimed: BigInt(found[1]), expireAt: closing ? found[2] : 0, consts };
  } catch {
    return null;
  }
}

/** Where a channel's rest goes: consumer_vkh with the channel's own stake part. */
export function refundAddress(channel, consumerVkh) {
  const kind = channel[0] >> 4;
  return concat(Uint8Array.of(((kind & 6) << 4) | (channel[0] & 15)), consumerVkh, channel.slice(29));
}

/** The least lovelace that stays in a channel so that Close and the refund always can be paid. */
export function reserveOf(address, terms, perByte) {
  const wide = 2n ** 63n - 1n;
  const consts = [terms.session_vk, terms.adapter_vkh, terms.payout, terms.consumer_vkh, terms.close_period_ms, terms.fee_bps];
  const datum = encode(new Tag(122, [consts, wide, wide]));
  const output = new Map([[0, address], [1, 2n ** 40n], [2, [1, new Tag(24, datum)]]]);
  return BigInt(160 + encode(output).length) * BigInt(perByte);
}
