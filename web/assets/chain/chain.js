// What the ledger says of a channel, read by this browser from a Blockfrost-compatible face.

import { fromHex, nth, toHex } from "../crypto/bytes.js";
import { isLocked, landing, movesOf, outputsOf, Unread, unspentOf } from "./descent.js";
import { headersOf } from "./door.js";
import { readStage } from "./lax.js";
import { constsOf } from "../money/records.js";
import { ADA_SCRIPTS, SCRIPTS } from "./scripts.js";
import { readTx } from "./transaction.js";
import { Broken } from "../money/evidence.js";

/**
 * @import { Bytes } from "../crypto/bytes.js"
 * @import { Door } from "./door.js"
 * @import { Moves, TxAnswer, Utxo } from "./descent.js"
 * @import { Stage } from "./lax.js"
 * @import { ChannelPart, Facts, HopPart } from "../money/evidence.js"
 */

/** @typedef {Stage & {ref: string, address: Bytes, text: string, lovelace: bigint, first: string}} Standing a channel as it stands */

/**
 * The life of a channel, from the output *first*; *refund* is its last output once it has ended.
 * @typedef {{first: Utxo, at: Utxo, stage: Stage, funded: bigint, refund: Utxo | null, txs: string[]}} Life
 */

export class Unreachable extends Error {}

const MOST_STEPS = 10_000;
const MOST_BACK = 200;
const PAGE = 100; // rows of one answer

/**
 * @param {Door} door
 * @param {string} path
 * @returns {Promise<any>} of the type that its caller states; null for what is not there
 */
async function ask(door, path) {
  let answer;
  try {
    answer = await fetch(`${door.url.replace(/\/$/, "")}${path}`, { headers: headersOf(door) });
  } catch {
    throw new Unreachable("the chain's public face cannot be reached from here");
  }
  if (answer.status === 404) return null;
  if (!answer.ok) throw new Unreachable(`the chain's face answered ${answer.status}`);
  return answer.json();
}

/** @type {(door: Door, tx: string) => Promise<TxAnswer | null>} */
const utxosOf = (door, tx) => ask(door, `/txs/${tx}/utxos`);

/**
 * What *tx* spent and made; Unread if no block shows it, where the chain itself named it.
 * @type {(door: Door, tx: string) => Promise<Moves>}
 */
async function movesIn(door, tx) {
  const answer = await utxosOf(door, tx);
  if (!answer) throw new Unread(`the chain's face names transaction ${tx} and does not show it yet`);
  return movesOf(tx, answer);
}

/**
 * The outputs of *tx*; null if it is in no block.
 * @type {(door: Door, tx: string) => Promise<Utxo[] | null>}
 */
async function outputsIn(door, tx) {
  const answer = await utxosOf(door, tx);
  return answer && outputsOf(tx, answer);
}

/**
 * What the ledger took for transaction *tx*, as its own bytes say; null if it is in no block, or is not plain.
 * @param {Door} door
 * @param {string} tx
 * @returns {Promise<bigint | null>}
 */
export async function feeOf(door, tx) {
  /** @type {{cbor?: string} | null} */
  const answer = await ask(door, `/txs/${tx}/cbor`);
  if (!answer?.cbor || !/^(?:[0-9a-f]{2})+$/.test(answer.cbor)) return null;
  try {
    const { id, fee } = readTx(fromHex(answer.cbor));
    return id === tx ? fee : null;
  } catch {
    return null; // with a script's data, or none of the era's plain forms: nobody says its fee
  }
}

/** @type {(output: Utxo) => Stage | null} */
const stageOf = ({ datum }) => datum && readStage(datum);
/** @type {(output: Utxo, id: string) => boolean} */
const isOf = (output, id) => toHex(stageOf(output)?.consts.session_vk ?? []) === id;
/** @type {(output: Utxo, stub: string | undefined) => boolean} */
const atScript = ({ address }, stub) => isLocked(address) && (!stub || toHex(address.slice(1, 29)) === stub);

/**
 * The life of the channel that began as output *first*. It is followed by position, so that no copy counts
 * (descent.js); Unread where that cannot be done.
 * @type {(door: Door, first: Utxo) => Promise<Life>}
 */
async function follow(door, first) {
  const began = stageOf(first);
  if (!began) throw new Unread("what opened the channel holds no channel");
  /** @type {Life} */
  const life = { first, at: first, stage: began, funded: first.lovelace, refund: null, txs: [first.tx] };
  while (life.at.spentBy && !life.refund) {
    if (life.txs.length > MOST_STEPS) throw new Unread("the channel's history does not end");
    await step(door, life, life.at.spentBy);
  }
  if (!life.refund && life.funded - (life.stage.claimed - began.claimed) !== life.at.lovelace) throw new Unread("the chain's face does not tell all of the channel's history");
  return life;
}

/**
 * One transaction onward.
 * @type {(door: Door, life: Life, tx: string) => Promise<void>}
 */
async function step(door, life, tx) {
  const made = await movesIn(door, tx);
  const { position, ended } = landing(life.at.ref, tx, made);
  const next = nth(made.outputs, position);
  life.txs.push(tx);
  if (ended) {
    life.refund = next;
    return;
  }
  const stage = stageOf(next);
  if (!stage || constsOf(stage.consts) !== constsOf(life.stage.consts)) throw new Unread(`the channel's constants changed in transaction ${tx}`);
  life.funded += next.lovelace - life.at.lovelace + stage.claimed - life.stage.claimed;
  Object.assign(life, { at: next, stage });
}

/**
 * The channel as it stands; null while no block
 * shows it, or once it has ended. *homes*: hex of the addresses where it can be, all where none are given. Unread:
 * sign nothing.
 * @param {Door} door
 * @param {string} id hex of its session key
 * @param {string} openTx
 * @param {Set<string>} [homes]
 * @returns {Promise<Standing | null>}
 */
export async function standing(door, id, openTx, homes) {
  const isHere = (/** @type {Utxo} */ output) => atScript(output, ADA_SCRIPTS.stub) && (!homes || homes.has(toHex(output.address)));
  const [first, another] = (await outputsIn(door, openTx))?.filter((output) => isHere(output) && isOf(output, id)) ?? [];
  if (!first) return null;
  if (another) throw new Unread(`transaction ${openTx} opened two channels of this key`);
  const life = await follow(door, first);
  if (life.refund) return null;
  const { ref, address, text, lovelace } = life.at;
  return { ref, address, text, lovelace, ...life.stage, first: life.first.ref };
}

/**
 * Further unspent outputs of the key at the *channel*'s address which one of *payers* (payment keys' hashes, hex)
 * paid for; of anybody's copies none. As marketplace/client/wallet/one_open.py has it.
 * @param {Door} door
 * @param {string} id hex of the session key
 * @param {Standing} channel
 * @param {Set<string>} payers
 */
export async function seconds(door, id, channel, payers) {
  /** @type {Map<string, Moves>} */
  const seen = new Map();
  const read = async (/** @type {string} */ tx) => {
    const moves = seen.get(tx) ?? (await movesIn(door, tx));
    seen.set(tx, moves);
    return moves;
  };
  /** @type {string[]} */
  const found = [];
  for (const output of await unspentAt(door, channel.text)) {
    if (output.ref === channel.ref || !isOf(output, id)) continue;
    for (const origin of await origins(read, output, id)) {
      if (origin.ref !== channel.first && (await read(origin.tx)).inputs.some((input) => payers.has(keyOf(input)))) found.push(output.ref);
    }
  }
  return [...new Set(found)];
}

/**
 * What of the outputs at *text* (an address) reads as a channel.
 * @type {(door: Door, text: string) => Promise<(Stage & {lovelace: bigint})[]>}
 */
export const channelsAt = async (door, text) =>
  (await unspentAt(door, text)).flatMap((output) => {
    const stage = stageOf(output);
    return stage ? [{ ...stage, lovelace: output.lovelace }] : [];
  });

/** @type {(door: Door, text: string) => Promise<Utxo[]>} */
async function unspentAt(door, text) {
  /** @type {Utxo[]} */
  const found = [];
  for (let page = 1; ; page++) {
    const rows = unspentOf((await ask(door, `/addresses/${text}/utxos?count=${PAGE}&page=${page}`)) ?? []);
    found.push(...rows);
    if (rows.length < PAGE) return found;
  }
}

/**
 * Where *output* began: backwards over every input that was a channel of the key, for a settlement may move two.
 * @type {(read: (tx: string) => Promise<Moves>, output: Utxo, id: string) => Promise<Utxo[]>}
 */
async function origins(read, output, id) {
  /** @type {Utxo[]} */
  const begun = [];
  const [seen, todo] = [new Set([output.ref]), [output]];
  for (let at = todo.pop(); at && seen.size <= MOST_BACK; at = todo.pop()) {
    const earlier = (await read(at.tx)).inputs.filter((input) => isLocked(input.address) && isOf(input, id));
    if (!earlier.length) begun.push(at);
    todo.push(...earlier.filter(({ ref }) => !seen.has(ref)));
    earlier.forEach(({ ref }) => seen.add(ref));
  }
  return begun;
}

/**
 * The payment key's hash of an output that a key locks.
 * @type {(output: Utxo) => string}
 */
const keyOf = ({ address }) => (address.length && !isLocked(address) ? toHex(address.slice(1, 29)) : "");

/**
 * The hash of the script at each of *refs* (`txid#index`), as far as the chain shows one.
 * @param {Door} door
 * @param {string[]} refs
 * @returns {Promise<Map<string, string>>}
 */
export async function scriptsAt(door, refs) {
  const found = new Map();
  for (const ref of refs) {
    const [tx = "", index] = ref.split("#");
    const output = (await utxosOf(door, tx))?.outputs.find((one) => !one.collateral && one.output_index === Number(index));
    if (output?.reference_script_hash) found.set(ref, output.reference_script_hash);
  }
  return found;
}

/**
 * I2: what opened the channel is what the evidence names, at the channel's script.
 * @type {(outputs: Utxo[] | null, channel: ChannelPart | HopPart, asset: string) => Utxo}
 */
function opened(outputs, { session_vk: id, open_tx: tx, index = 0 }, asset) {
  const first = outputs?.find((output) => output.index === Number(index));
  if (first && isOf(first, id) && atScript(first, SCRIPTS[asset]?.stub)) return first;
  const there = outputs ? "holds another output" : "is in no block of this chain";
  throw new Broken("I2", "open", `channel ${id.slice(0, 16)}: ${tx}#${index} did not open it; it ${there}`);
}

/**
 * What the ledger says of the evidence's *channel*; null
 * while it may still be opened: nothing was delivered on it, or its job is not *over* and no block shows
 * its open. Broken for an open that is another's, Unread for one that cannot be followed.
 * @param {Door} door
 * @param {ChannelPart | HopPart} channel
 * @param {string} asset
 * @param {boolean} over
 * @returns {Promise<Facts | null>}
 */
export async function facts(door, channel, asset, over) {
  const { session_vk: id, open_tx: openTx, voucher } = channel;
  const delivered = ("receipts" in channel && channel.receipts.length > 0) || Boolean(voucher);
  if (!openTx && !delivered) return null;
  if (!openTx) throw new Broken("I2", "open", `channel ${id.slice(0, 16)}: it was paid over, and the evidence names no transaction that opened it`);
  const outputs = await outputsIn(door, openTx);
  if (!outputs && !(over && delivered)) return null;
  const first = opened(outputs, channel, asset);
  if (asset) throw new Unread("this page follows channels in ADA alone: `tally invoice` follows the others");
  const { stage, funded, txs, at, refund } = await follow(door, first);
  const consts = [stage.consts.session_vk, stage.consts.adapter_vkh, stage.consts.payout, stage.consts.consumer_vkh].map(toHex)
    .concat([stage.consts.close_period_ms, stage.consts.fee_bps].map(String));
  /** @type {Facts} */
  const found = { session_vk: id, consts, funded, claimed: stage.claimed, refunded: 0n, held: at.lovelace, ended: false, txs };
  if (!refund) return found;
  return { ...found, claimed: stage.claimed + at.lovelace - refund.lovelace, refunded: refund.lovelace, held: 0n, ended: true };
}
