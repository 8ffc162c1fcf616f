// An unsigned open transaction, read in this browser and compared with the quote before a wallet is
// asked. Nothing that the market says about it is believed: amounts come from the bytes, inputs from
// the wallet's own outputs.

import { blake2b } from "./blake2b.js";
import { concat, fromHex, same, toHex } from "./bytes.js";
import { decode, encode, rawItems, Tag } from "./cbor.js";

const BODY_MAY_HAVE = new Set([0, 1, 2, 3, 8, 15]); // inputs, outputs, fee, bounds, network id
const FEE_MOST = 2_000_000n;

const asMap = (value) => (value instanceof Map ? value : new Map());
const items = (value) => (value instanceof Tag && value.number === 258 ? value.value : value); // a set

/** `{address, lovelace, plain, datum}` of one output; *plain*: no token, script or datum hash. */
function readOutput(output) {
  const legacy = Array.isArray(output);
  const [address, value] = legacy ? output : [output.get(0), output.get(1)];
  const lovelace = Array.isArray(value) ? value[0] : value;
  const option = legacy ? undefined : output.get(2);
  const strange = legacy ? output.length > 2 : [...output.keys()].some((key) => ![0, 1, 2].includes(key));
  const inline = Array.isArray(option) && option[0] === 1 && option[1] instanceof Tag ? option[1].value : null;
  return { address, lovelace: BigInt(lovelace), tokens: Array.isArray(value), strange: strange || (option && !inline), datum: inline };
}

/** What a wallet's `getUtxos` says: lovelace by `txid#index`. */
export function readUtxos(hexes) {
  const found = new Map();
  for (const hex of hexes ?? []) {
    const [[id, index], output] = decode(fromHex(hex));
    found.set(`${toHex(id)}#${index}`, readOutput(output));
  }
  return found;
}

/** The transaction's id and parts: `{id, inputs, outputs, fee, until, extra}`. */
export function readTx(bytes) {
  const [bodyBytes] = rawItems(bytes);
  const body = asMap(decode(bodyBytes));
  return {
    id: toHex(blake2b(bodyBytes)),
    inputs: items(body.get(0) ?? []).map(([id, index]) => `${toHex(id)}#${index}`),
    outputs: (body.get(1) ?? []).map(readOutput),
    fee: BigInt(body.get(2) ?? 0),
    network: body.get(15),
    extra: [...body.keys()].filter((key) => !BODY_MAY_HAVE.has(key)),
  };
}

const constr = (value, number) => (value instanceof Tag && value.number === 121 + number ? value.value : null);

/** The channel's datum that *terms* demand: Open[Consts, 0]. */
export function openDatum(terms) {
  const consts = [terms.session_vk, terms.adapter_vkh, terms.payout, terms.consumer_vkh, terms.close_period_ms, terms.fee_bps];
  return encode(new Tag(121, [consts, 0]));
}

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

/** Where a consumer's channels are: the stub with the stake part of the wallet's address. */
export function channelAddress(stubHash, wallet, mainnet) {
  const kind = wallet[0] >> 4;
  const based = kind <= 3 && wallet.length === 57;
  const header = (based ? (kind >= 2 ? 3 : 1) : 7) << 4;
  return concat(Uint8Array.of(header | (mainnet ? 1 : 0)), stubHash, based ? wallet.slice(29) : new Uint8Array());
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

/**
 * The checks of an open transaction, each `{ok, text}`, and what leaves the wallet. *wanted*:
 * `{terms, stubHash, wallet, mainnet, utxos, extra}` with *wallet* the address's bytes and *extra* what
 * its owner puts aside for later jobs.
 */
export function checkOpen(bytes, wanted) {
  const tx = readTx(bytes);
  const { terms } = wanted;
  const address = channelAddress(wanted.stubHash, wanted.wallet, wanted.mainnet);
  const expected = openDatum(terms);
  const channels = tx.outputs.filter((output) => same(output.address, address));
  const channel = channels[0];
  const others = tx.outputs.filter((output) => output !== channel);
  const home = others.every((o) => same(o.address, wanted.wallet) && !o.strange && !o.datum); // no lock on it
  const amount = channel?.lovelace ?? 0n;
  const extra = wanted.extra ?? 0n;
  const reserve = amount - BigInt(terms.ceiling) - extra;
  const bound = reserveOf(address, terms, wanted.perByte ?? 4310);
  const spent = tx.inputs.map((name) => wanted.utxos.get(name));
  const known = spent.every(Boolean);
  const back = others.filter((o) => same(o.address, wanted.wallet));
  const total = (outputs) => outputs.reduce((sum, o) => sum + o.lovelace, 0n);
  const leaving = known ? total(spent) - total(back) : null;
  const checks = [
    { ok: channels.length === 1 && !channel.tokens && !channel.strange, text: "one output, at the channel's script" },
    { ok: Boolean(channel?.datum && same(channel.datum, expected)), text: "its rules are those of the signed terms" },
    { ok: reserve >= 0n && reserve <= bound + 100_000n, text: `it holds the ceiling${extra ? ", what you put aside" : ""} and the reserve, no more` },
    { ok: home, text: "everything else comes back to your address" },
    { ok: known && leaving === amount + tx.fee, text: "what leaves your wallet is the channel and the fee" },
    { ok: tx.fee > 0n && tx.fee <= FEE_MOST, text: "the fee is an ordinary one" },
    { ok: tx.extra.length === 0 && (tx.network === undefined || tx.network === (wanted.mainnet ? 1 : 0)), text: "it does nothing else" },
  ];
  return { ...tx, amount, reserve, checks, ok: checks.every(({ ok }) => ok) };
}

