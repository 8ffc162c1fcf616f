// Where a channel's money went in a transaction, read by position from what the ledger holds: its outputs.
// The reading is that of marketplace/chain/channels/descent.py, which says why (docs/decisions/0060); both answer
// tests/golden/landings.json. Channels hold ADA here, which is all that this page pays in.
//
// Where outputs have two readings the redeemer would decide: this page then says so, and nothing is signed.

import { blake2b } from "../crypto/blake2b.js";
import { concat, fromHex, messageOf, nth, toHex } from "../crypto/bytes.js";
import { Malformed, State } from "./lax.js";

/** @import { Bytes } from "../crypto/bytes.js" */

/**
 * An output of a Blockfrost-compatible answer.
 * @typedef {object} Utxo
 * @property {string} ref `txid#index`
 * @property {string} tx
 * @property {number} index
 * @property {Bytes} address
 * @property {string} text the address as it was told
 * @property {bigint} lovelace
 * @property {boolean} tokens whether it holds anything but ADA
 * @property {Bytes | null} datum
 * @property {boolean} hashed whether its datum is only named
 * @property {boolean} script whether it carries one
 * @property {string | null} spentBy
 */

/**
 * A row of that answer, as far as it is read.
 * @typedef {object} Row
 * @property {string} address
 * @property {{unit: string, quantity: string}[]} amount
 * @property {number} output_index
 * @property {string | null} [inline_datum]
 * @property {string | null} [data_hash]
 * @property {string | null} [reference_script_hash]
 * @property {string | null} [consumed_by_tx]
 * @property {string} [tx_hash]
 * @property {boolean} [collateral]
 * @property {boolean} [reference]
 */

/** @typedef {{inputs: Row[], outputs: Row[]}} TxAnswer */
/** @typedef {{inputs: Utxo[], outputs: Utxo[]}} Moves what a transaction spent and made */
/** @typedef {{position: number, ended: boolean}} Landing an output: the channel still or, if *ended*, its refund */
/** @typedef {{inRun: boolean, pays: bigint, ended: boolean}} Fit a channel's step that makes an output */

/** What the chain shows cannot be read here, or not in one way. */
export class Unread extends Error {}

const [OPEN, CLOSING] = [0n, 1n]; // contracts/README.md
const SCRIPT = 0x10; // CIP-19: the header's bit for a payment part by script
const POINTERS = [4, 5];
const MOST_READINGS = 50_000;
const LETTERS = "qpzry9x8gf2tvdw0s3jn54khce6mua7l";
const BEYOND = "beyond"; // of a reading in which mine was before

/**
 * Bytes of a bech32 address; checks nothing, for it is only compared. None of a Byron address, which no settlement can hold.
 * @param {string} text
 * @returns {Bytes}
 */
export function addressBytes(text) {
  const data = [...text.slice(text.lastIndexOf("1") + 1, -6)].map((letter) => LETTERS.indexOf(letter));
  if (!text.startsWith("addr") || data.includes(-1)) return new Uint8Array();
  let [held, bits] = [0, 0];
  /** @type {number[]} */
  const out = [];
  for (const value of data) {
    held = ((held << 5) | value) & 0xfff;
    bits += 5;
    if (bits >= 8) {
      bits -= 8;
      out.push((held >> bits) & 255);
    }
  }
  return Uint8Array.from(out);
}

/**
 * The address's type (CIP-19), of its header.
 * @type {(address: Bytes) => number}
 */
const kindOf = (address) => (address[0] ?? 0xff) >> 4;

/**
 * Whether a script locks what is there (CIP-19).
 * @type {(address: Bytes) => boolean}
 */
export const isLocked = (address) => [1, 3, 5, 7].includes(kindOf(address));

/** @type {(tx: string, row: Row) => Utxo} */
function utxoOf(tx, row) {
  const { output_index: index, address: text, inline_datum: datum, data_hash: hashed, reference_script_hash: script } = row;
  const lovelace = BigInt(row.amount.find(({ unit }) => unit === "lovelace")?.quantity ?? 0);
  const tokens = row.amount.some(({ unit, quantity }) => unit !== "lovelace" && BigInt(quantity) !== 0n);
  return {
    ref: `${tx}#${index}`, tx, index, address: addressBytes(text), text, lovelace, tokens,
    datum: datum ? fromHex(datum) : null, hashed: Boolean(hashed && !datum), script: Boolean(script), spentBy: row.consumed_by_tx ?? null,
  };
}

/** @type {(row: Row) => string} */
function txOf({ tx_hash: tx }) {
  if (!tx) throw new Malformed("no transaction is named");
  return tx;
}

/**
 * Outputs that are unspent at an address, as the chain's face lists them.
 * @type {(rows: Row[]) => Utxo[]}
 */
export const unspentOf = (rows) => reading(() => rows.map((row) => utxoOf(txOf(row), row)));

/**
 * What transaction *tx* made, in order; what it would have had back of its collateral is left out.
 * @type {(tx: string, answer: TxAnswer) => Utxo[]}
 */
export const outputsOf = (tx, answer) =>
  reading(() => answer.outputs.filter(({ collateral }) => !collateral).map((row) => utxoOf(tx, row)).sort((a, b) => a.index - b.index));

/**
 * `{inputs, outputs}` of transaction *tx*: what it spent and made. What it only refers to, or pledges, is left out.
 * @param {string} tx
 * @param {TxAnswer} answer
 * @returns {Moves}
 */
export function movesOf(tx, answer) {
  const outputs = outputsOf(tx, answer);
  return reading(() => {
    const inputs = answer.inputs.filter(({ collateral, reference }) => !collateral && !reference).map((row) => utxoOf(txOf(row), row));
    if (outputs.some(({ index }, i) => index !== i)) throw new Malformed("an output is missing");
    return { inputs, outputs };
  });
}

/**
 * @template T
 * @param {() => T} work
 * @returns {T}
 */
function reading(work) {
  try {
    return work();
  } catch (error) {
    throw new Unread(`the chain's face answers in a form that is not known here (${messageOf(error)})`);
  }
}

/** @type {(a: Utxo, b: Utxo) => number} */
const before = (a, b) => (a.tx === b.tx ? a.index - b.index : a.tx < b.tx ? -1 : 1);

/**
 * Every place where settle can have put the channel at *mine* (`txid#index`): output
 * number *position*, the channel still or, if *ended*, its refund. One, but in a transaction made to be read in
 * two ways, and none if no settlement has these outputs.
 * @param {string} mine
 * @param {Moves} moves
 * @returns {Landing[]}
 */
export function landings(mine, { inputs, outputs }) {
  const locked = inputs.filter(({ address }) => isLocked(address)).sort(before);
  const index = locked.findIndex(({ ref }) => ref === mine);
  if (index < 0) throw new Malformed("it does not spend the channel");
  const found = new Walk(locked, outputs, index).onward(0, 0, "", 0n);
  return [...found].filter((one) => one !== BEYOND).map((one) => JSON.parse(one));
}

/**
 * The one place; Unread where there is none, or where outputs alone do not tell.
 * @param {string} mine
 * @param {string} tx
 * @param {Moves} moves
 */
export function landing(mine, tx, moves) {
  let found;
  try {
    found = landings(mine, moves);
  } catch (error) {
    if (error instanceof Malformed) throw new Unread(`transaction ${tx} cannot be read: ${error.message}`);
    throw error;
  }
  const [only] = found;
  if (only && found.length === 1) return only;
  throw new Unread(found.length ? `transaction ${tx} was made to be read in two ways, and this page does not choose: \`tally channel check\` does` : `transaction ${tx} spends the channel and has no reading`);
}

/** Settle's walk over the *locked* inputs, from the outputs: every way in which it fits. */
class Walk {
  /**
   * @param {Utxo[]} locked
   * @param {Utxo[]} outputs
   * @param {number} mine index in *locked*
   */
  constructor(locked, outputs, mine) {
    this.locked = locked;
    this.outputs = outputs;
    this.mine = mine;
    /** @type {Map<string, Set<string>>} */
    this.known = new Map();
  }

  /**
   * Landings of mine if the inputs from *at* consume the outputs from *position*, the open run owing *owed* to
   * *payee*; BEYOND where mine was before, empty where nothing fits.
   * @param {number} at
   * @param {number} position
   * @param {string} payee
   * @param {bigint} owed
   * @returns {Set<string>}
   */
  onward(at, position, payee, owed) {
    const key = `${at} ${position} ${payee} ${owed}`;
    const known = this.known.get(key);
    if (known) return known;
    if (this.known.size >= MOST_READINGS) throw new Malformed("it can be read in too many ways");
    const found = this.readings(at, position, payee, owed);
    this.known.set(key, found);
    return found;
  }

  /**
   * @param {number} at
   * @param {number} position
   * @param {string} payee
   * @param {bigint} owed
   * @returns {Set<string>}
   */
  readings(at, position, payee, owed) {
    const after = position + (owed === 0n ? 0 : 1);
    const flushed = owed === 0n || this.isPayout(position, payee, owed);
    const input = this.locked[at];
    if (!input) return new Set(flushed ? [BEYOND] : []);
    /** @type {string[]} */
    const found = [];
    const { payout } = stateOf(input);
    let step = this.step(at, position);
    if (step?.inRun && payout === payee) found.push(...this.take(at, position, step, payee, owed + step.pays));
    step = flushed ? this.step(at, after) : null;
    if (step && !step.inRun) found.push(...this.take(at, after, step, "", 0n));
    else if (step && payout !== payee) found.push(...this.take(at, after, step, payout, step.pays));
    return new Set(found);
  }

  /**
   * @param {number} at
   * @param {number} position
   * @param {Fit} step
   * @param {string} payee
   * @param {bigint} owed
   * @returns {Set<string>}
   */
  take(at, position, step, payee, owed) {
    const rest = this.onward(at + 1, position + 1, payee, owed);
    return at === this.mine && rest.size ? new Set([JSON.stringify({ position, ended: step.ended })]) : rest;
  }

  /**
   * The step of the channel at *at* that makes the output at *position*; null if none does.
   * @param {number} at
   * @param {number} position
   * @returns {Fit | null}
   */
  step(at, position) {
    const [was, is] = [this.locked[at], this.outputs[position]];
    if (!was || !is || is.script || is.tokens) return null;
    try {
      return mayBeOne(is.address, was.address) ? continued(was, is) : refunded(was, is);
    } catch (error) {
      if (error instanceof Malformed) return null;
      throw error;
    }
  }

  /**
   * @param {number} position
   * @param {string} payee
   * @param {bigint} owed
   */
  isPayout(position, payee, owed) {
    const out = this.outputs[position];
    if (!out || out.datum || out.hashed || out.script || out.tokens || out.lovelace < owed) return false;
    const hash = payoutHash(out.address);
    return hash === null ? POINTERS.includes(kindOf(out.address)) : hash === payee; // a pointer's is not computed here: it may be
  }
}

/** @type {(output: Utxo) => State} */
const stateOf = ({ datum }) => new State(datum ?? new Uint8Array());

/** @type {(was: Utxo, is: Utxo) => Fit | null} */
function continued(was, is) {
  const [old, now] = [stateOf(was), stateOf(is)];
  const more = is.lovelace - was.lovelace;
  const taken = now.claimed - old.claimed;
  if (taken > 0n && more === -taken && now.stage === old.stage) return { inRun: true, pays: taken - bounty(taken, old.feeBps), ended: false };
  const topped = more > 0n && now.stage === OPEN && old.stage === OPEN;
  const closed = more === 0n && old.stage === OPEN && now.stage === CLOSING;
  return taken === 0n && (topped || closed) ? { inRun: false, pays: 0n, ended: false } : null;
}

/** @type {(was: Utxo, is: Utxo) => Fit | null} */
function refunded(was, is) {
  const old = stateOf(was);
  const home = concat(Uint8Array.of(nth(was.address, 0) & ~SCRIPT), old.consumerVkh, was.address.subarray(29)); // the same, its payment by a key
  if (is.datum || is.hashed || !mayBeOne(is.address, home)) return null;
  const taken = was.lovelace - is.lovelace;
  if (taken < 0n) return null;
  return { inRun: true, pays: taken ? taken - bounty(taken, old.feeBps) : 0n, ended: true };
}

/**
 * Rounded down, as settle's division is.
 * @type {(taken: bigint, bps: bigint) => bigint}
 */
function bounty(taken, bps) {
  const product = taken * bps;
  return product / 10_000n - (product % 10_000n < 0n ? 1n : 0n);
}

/**
 * Whether settle can take these for one address: a pointer's numbers can be written in many lengths, and the
 * ledger brings those that it finds too large to nought, so any two may be equal.
 * @type {(one: Bytes, other: Bytes) => boolean}
 */
function mayBeOne(one, other) {
  const [a, b] = [toHex(one), toHex(other)];
  return a === b || (POINTERS.includes(kindOf(one)) && a.slice(0, 58) === b.slice(0, 58));
}

/**
 * By what the channel's constants name a base or enterprise address (contracts/README.md), hex; null for any other.
 * @type {(address: Bytes) => string | null}
 */
function payoutHash(address) {
  const kind = kindOf(address);
  const staked = kind <= 3 && address.length === 57;
  if (!staked && !([6, 7].includes(kind) && address.length === 29)) return null;
  /** @type {(script: number, hash: Bytes) => Bytes} */
  const credential = (script, hash) => concat(Uint8Array.of(0xd8, script ? 0x7a : 0x79, 0x9f, 0x58, 28), hash, Uint8Array.of(0xff));
  const stake = staked ? concat(fromHex("d8799fd8799f"), credential(kind & 2, address.subarray(29)), fromHex("ffff")) : fromHex("d87a80");
  return toHex(blake2b(concat(fromHex("d8799f"), credential(kind & 1, address.subarray(1, 29)), stake, fromHex("ff")), 28));
}
