// What the ledger says of a channel, read by this browser from a Blockfrost-compatible face.

import { fromHex, toHex } from "./bytes.js";
import { headersFor } from "./door.js";
import { readStage, refundAddress } from "./opentx.js";
import { SCRIPTS } from "./scripts.js";
import { Broken } from "./verify.js";

export class Unreachable extends Error {}

async function utxosOf(url, tx) {
  let answer;
  try {
    const path = `${url.replace(/\/$/, "")}/txs/${tx}/utxos`;
    answer = await fetch(path, { headers: headersFor(path) });
  } catch {
    throw new Unreachable("the chain's public face cannot be reached from here");
  }
  if (answer.status === 404) return null;
  if (!answer.ok) throw new Unreachable(`the chain's face answered ${answer.status}`);
  return answer.json();
}

const lovelace = (output) => BigInt(output.amount.find(({ unit }) => unit === "lovelace")?.quantity ?? 0);
const stageOf = (output) => (output.inline_datum ? readStage(fromHex(output.inline_datum)) : null);
const isOf = (output, id) => {
  const stage = stageOf(output);
  return stage && toHex(stage.consts.session_vk) === id ? stage : null;
};

/** Bytes of a bech32 address; checks nothing: it is only compared. */
export function addressBytes(text) {
  const alphabet = "qpzry9x8gf2tvdw0s3jn54khce6mua7l";
  const data = text.slice(text.lastIndexOf("1") + 1, -6);
  let [held, bits] = [0, 0];
  const out = [];
  for (const letter of data) {
    held = ((held << 5) | alphabet.indexOf(letter)) & 0xfff;
    bits += 5;
    if (bits >= 8) {
      bits -= 8;
      out.push((held >> bits) & 255);
    }
  }
  return Uint8Array.from(out);
}

/**
 * The channel as it stands: `{ref, address, lovelace, claimed, open, consts}`; null while no block shows
 * it, or once it has ended. *homes*: hex of the addresses where it can be.
 */
export async function standing(url, id, openTx, homes) {
  const isHere = (output) => homes.has(toHex(addressBytes(output.address))) && isOf(output, id);
  let tx = openTx;
  for (;;) {
    const seen = await utxosOf(url, tx);
    const at = seen?.outputs.find((output) => !output.collateral && isHere(output));
    if (!at) return null;
    if (!at.consumed_by_tx) {
      const { open, claimed, consts } = stageOf(at);
      return { ref: `${tx}#${at.output_index}`, address: addressBytes(at.address), lovelace: lovelace(at), claimed, open, consts };
    }
    tx = at.consumed_by_tx;
  }
}

/** The hash of the script at each of *refs* (`txid#index`), as far as the chain shows one. */
export async function scriptsAt(url, refs) {
  const found = new Map();
  for (const ref of refs) {
    const [tx, index] = ref.split("#");
    const output = (await utxosOf(url, tx))?.outputs.find((one) => one.output_index === Number(index));
    if (output?.reference_script_hash) found.set(ref, output.reference_script_hash);
  }
  return found;
}

/** I2: what opened the channel is what the evidence names, at the channel's script. */
function opened(seen, { session_vk: id, open_tx: tx, index = 0 }, asset) {
  const stub = SCRIPTS[asset]?.stub;
  const at = seen?.outputs.find((output) => output.output_index === Number(index) && isOf(output, id));
  if (at && (!stub || toHex(addressBytes(at.address)).slice(2, 58) === stub)) return at;
  const there = seen ? "holds another output" : "is in no block of this chain";
  throw new Broken("I2", "open", `channel ${id.slice(0, 16)}: ${tx}#${index} did not open it; it ${there}`);
}

/**
 * `{session_vk, consts, funded, claimed, refunded, held, ended, txs}` of the evidence's *channel*; null
 * while it may still be opened: nothing was delivered on it, or its job is not *over* and no block shows
 * its open. Broken for an open that is another's. Its voucher tells which output is a batch's refund.
 */
export async function facts(url, channel, asset, over) {
  const { session_vk: id, open_tx: openTx, receipts, voucher } = channel;
  const delivered = receipts.length > 0 || Boolean(voucher);
  if (!openTx && !delivered) return null;
  if (!openTx) throw new Broken("I2", "open", `channel ${id.slice(0, 16)}: it has receipts, and the evidence names no transaction that opened it`);
  let seen = await utxosOf(url, openTx);
  if (!seen && !(over && delivered)) return null;
  let at = opened(seen, channel, asset);
  const signed = voucher?.cumulative ?? 0;
  let stage = stageOf(at);
  const consts = [stage.consts.session_vk, stage.consts.adapter_vkh, stage.consts.payout, stage.consts.consumer_vkh].map(toHex)
    .concat([stage.consts.close_period_ms, stage.consts.fee_bps].map(String));
  const found = { session_vk: id, consts, funded: lovelace(at), claimed: stage.claimed, refunded: 0n, held: lovelace(at), ended: false, txs: [openTx] };
  const home = toHex(refundAddress(addressBytes(at.address), stage.consts.consumer_vkh));
  while (at.consumed_by_tx) {
    const tx = at.consumed_by_tx;
    seen = await utxosOf(url, tx);
    if (!seen) return found;
    found.txs.push(tx);
    const address = at.address;
    const next = seen.outputs.find((output) => output.address === address && isOf(output, id));
    if (!next) return finished(found, seen, home, BigInt(signed));
    const after = stageOf(next);
    const taken = after.claimed - stage.claimed;
    found.funded += lovelace(next) - (found.held - taken);
    found.claimed = after.claimed;
    found.held = lovelace(next);
    [at, stage] = [next, after];
  }
  return found;
}

function finished(found, seen, home, signed) {
  const refunds = seen.outputs
    .filter((output) => !output.inline_datum && toHex(addressBytes(output.address)) === home)
    .map(lovelace)
    .filter((amount) => amount <= found.held);
  const expected = found.held - (signed - found.claimed);
  const refunded = refunds.find((amount) => amount === expected) ?? refunds.sort((a, b) => (a < b ? 1 : -1))[0] ?? 0n;
  return { ...found, claimed: found.claimed + found.held - refunded, refunded, held: 0n, ended: true };
}
