// Where a channel's money went in a transaction, read by position from what the ledger holds: its outputs.
// The reading is that of marketplace/chain/descent.py, which says why (docs/decisions/0060); both answer
// tests/golden/landings.json. Channels hold ADA here, which is all that this page pays in.
//
// Where outputs have two readings the redeemer would decide: this page then says so, and nothing is signed.

import { blake2b } from "./blake2b.js";
import { concat, fromHex, toHex } from "./bytes.js";
import { Malformed, State } from "./lax.js";

/** What the chain shows cannot be read here, or not in one way. */
export class Unread extends Error {}

const [OPEN, CLOSING] = [0n, 1n]; // contracts/README.md
const SCRIPT = 0x10; // CIP-19: the header's bit for a payment part by script
const POINTERS = [4, 5];
const MOST_READINGS = 50_000;
const LETTERS = "qpzry9x8gf2tvdw0s3jn54khce6mua7l";
const BEYOND = "beyond"; // of a reading in which mine was before

/** Bytes of a bech32 address; checks nothing, for it is only compared. None of a Byron address, which no settlement can hold. */
export function addressBytes(text) {
  const data = [...text.slice(text.lastIndexOf("1") + 1, -6)].map((letter) => LETTERS.indexOf(letter));
  if (!text.startsWith("addr") || data.includes(-1)) return new Uint8Array();
  let [held, bits] = [0, 0];
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

/** Whether a script locks what is there (CIP-19). */
export const isLocked = (address) => [1, 3, 5, 7].includes(address[0] >> 4);

/** `{ref, tx, index, address, text, lovelace, tokens, datum, hashed, script, spentBy}` of a row of a Blockfrost-compatible answer. */
function utxoOf(tx, row) {
  const { output_index: index, address: text, inline_datum: datum, data_hash: hashed, reference_script_hash: script } = row;
  const lovelace = BigInt(row.amount.find(({ unit }) => unit === "lovelace")?.quantity ?? 0);
  const tokens = row.amount.some(({ unit, quantity }) => unit !== "lovelace" && BigInt(quantity) !== 0n);
  return {
    ref: `${tx}#${index}`, tx, index, address: addressBytes(text), text, lovelace, tokens,
    datum: datum ? fromHex(datum) : null, hashed: Boolean(hashed && !datum), script: Boolean(script), spentBy: row.consumed_by_tx ?? null,
  };
}

/** Outputs that are unspent at an address, as the chain's face lists them. */
export const unspentOf = (rows) => reading(() => rows.map((row) => utxoOf(row.tx_hash, row)));

/** What transaction *tx* made, in order; what it would have had back of its collateral is left out. */
export const outputsOf = (tx, answer) =>
  reading(() => answer.outputs.filter(({ collateral }) => !collateral).map((row) => utxoOf(tx, row)).sort((a, b) => a.index - b.index));

/** `{inputs, outputs}` of transaction *tx*: what it spent and made. What it only refers to, or pledges, is left out. */
export function movesOf(tx, answer) {
  const outputs = outputsOf(tx, answer);
  return reading(() => {
    const inputs = answer.inputs.filter(({ collateral, reference }) => !collateral && !reference).map((row) => utxoOf(row.tx_hash, row));
    if (outputs.some(({ index }, i) => index !== i)) throw new Malformed("an output is missing");
    return { inputs, outputs };
  });
}

function reading(work) {
  try {
    return work();
  } catch (error) {
    throw new Unread(`the chain's face answers in a form that is not known here (${error.message})`);
  }
}

const before = (a, b) => (a.tx === b.tx ? a.index - b.index : a.tx < b.tx ? -1 : 1);

/**
 * Every place, `{position, ended}`, where settle can have put the channel at *mine* (`txid#index`): output
 * number *position*, the channel still or, if *ended*, its refund. One, but in a transaction made to be read in
 * two ways, and none if no settlement has these outputs.
 */
export function landings(mine, { inputs, outputs }) {
  const locked = inputs.filter(({ address }) => isLocked(address)).sort(before);
  const index = locked.findIndex(({ ref }) => ref === mine);
  if (index < 0) throw new Malformed("it does not spend the channel");
  const found = new Walk(locked, outputs, index).onward(0, 0, "", 0n);
  return [...found].filter((one) => one !== BEYOND).map((one) => JSON.parse(one));
}

/** The one place; Unread where there is none, or where outputs alone do not tell. */
export function landing(mine, tx, moves) {
  let found;
  try {
    found = landings(mine, moves);
  } catch (error) {
    if (error instanceof Malformed) throw new Unread(`transaction ${tx} cannot be read: ${error.message}`);
    throw error;
  }
  if (found.length === 1) return found[0];
  throw new Unread(found.length ? `transaction ${tx} was made to be read in two ways, and this page does not choose: \`tally channel check\` does` : `transaction ${tx} spends the channel and has no reading`);
}

/** Settle's walk over the *locked* inputs, from the outputs: every way in which it fits. */
class Walk {
  constructor(locked, outputs, mine) {
    Object.assign(this, { locked, outputs, mine, known: new Map() });
  }

  /**
   * Landings of mine if the inputs from *at* consume the outputs from *position*, the open run owing *owed* to
   * *payee*; BEYOND where mine was before, empty where nothing fits.
   */
  onward(at, position, payee, owed) {
    const key = `${at} ${position} ${payee} ${owed}`;
    if (!this.known.has(key)) {
      if (this.known.size >= MOST_READINGS) throw new Malformed("it can be read in too many ways");
      this.known.set(key, this.readings(at, position, payee, owed));
    }
    return this.known.get(key);
  }

  readings(at, position, payee, owed) {
    const after = position + (owed === 0n ? 0 : 1);
    const flushed = owed === 0n || this.isPayout(position, payee, owed);
    if (at === this.locked.length) return new Set(flushed ? [BEYOND] : []);
    const found = [];
    const { payout } = new State(this.locked[at].datum ?? new Uint8Array());
    let step = this.step(at, position);
    if (step?.inRun && payout === payee) found.push(...this.take(at, position, step, payee, owed + step.pays));
    step = flushed ? this.step(at, after) : null;
    if (step && !step.inRun) found.push(...this.take(at, after, step, "", 0n));
    else if (step && payout !== payee) found.push(...this.take(at, after, step, payout, step.pays));
    return new Set(found);
  }

  take(at, position, step, payee, owed) {
    const rest = this.onward(at + 1, position + 1, payee, owed);
    return at === this.mine && rest.size ? new Set([JSON.stringify({ position, ended: step.ended })]) : rest;
  }

  /** The step of the channel at *at* that makes the output at *position*, `{inRun, pays, ended}`; null if none does. */
  step(at, position) {
    const [was, is] = [this.locked[at], this.outputs[position]];
    if (!is || is.script || is.tokens) return null;
    try {
      return mayBeOne(is.address, was.address) ? continued(was, is) : refunded(was, is);
    } catch (error) {
      if (error instanceof Malformed) return null;
      throw error;
    }
  }

  isPayout(position, payee, owed) {
    const out = this.outputs[position];
    if (!out || out.datum || out.hashed || out.script || out.tokens || out.lovelace < owed) return false;
    const hash = payoutHash(out.address);
    return hash === null ? POINTERS.includes(out.address[0] >> 4) : hash === payee; // a pointer's is not computed here: it may be
  }
}

const stateOf = ({ datum }) => new State(datum ?? new Uint8Array());

function continued(was, is) {
  const [old, now] = [stateOf(was), stateOf(is)];
  const more = is.lovelace - was.lovelace;
  const taken = now.claimed - old.claimed;
  if (taken > 0n && more === -taken && now.stage === old.stage) return { inRun: true, pays: taken - bounty(taken, old.feeBps), ended: false };
  const topped = more > 0n && now.stage === OPEN && old.stage === OPEN;
  const closed = more === 0n && old.stage === OPEN && now.stage === CLOSING;
  return taken === 0n && (topped || closed) ? { inRun: false, pays: 0n, ended: false } : null;
}

function refunded(was, is) {
  const old = stateOf(was);
  const home = concat(Uint8Array.of(was.address[0] & ~SCRIPT), old.consumerVkh, was.address.subarray(29)); // the same, its payment by a key
  if (is.datum || is.hashed || !mayBeOne(is.address, home)) return null;
  const taken = was.lovelace - is.lovelace;
  if (taken < 0n) return null;
  return { inRun: true, pays: taken ? taken - bounty(taken, old.feeBps) : 0n, ended: true };
}

/** Rounded down, as settle's division is. */
function bounty(taken, bps) {
  const product = taken * bps;
  return product / 10_000n - (product % 10_000n < 0n ? 1n : 0n);
}

/**
 * Whether settle can take these for one address: a pointer's numbers can be written in many lengths, and the
 * ledger brings those that it finds too large to nought, so any two may be equal.
 */
function mayBeOne(one, other) {
  const [a, b] = [toHex(one), toHex(other)];
  return a === b || (POINTERS.includes(one[0] >> 4) && a.slice(0, 58) === b.slice(0, 58));
}

/** By what the channel's constants name a base or enterprise address (contracts/README.md), hex; null for any other. */
function payoutHash(address) {
  const kind = address[0] >> 4;
  const staked = kind <= 3 && address.length === 57;
  if (!staked && !([6, 7].includes(kind) && address.length === 29)) return null;
  const credential = (script, hash) => concat(Uint8Array.of(0xd8, script ? 0x7a : 0x79, 0x9f, 0x58, 28), hash, Uint8Array.of(0xff));
  const stake = staked ? concat(fromHex("d8799fd8799f"), credential(kind & 2, address.subarray(29)), fromHex("ffff")) : fromHex("d87a80");
  return toHex(blake2b(concat(fromHex("d8799f"), credential(kind & 1, address.subarray(1, 29)), stake, fromHex("ff")), 28));
}
