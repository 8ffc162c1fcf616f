// Everything that a transaction does, judged from its own bytes before a wallet is asked to sign it. The
// rules, their order and their codes are those of marketplace/chain/actions/judge.py (docs/security.md lists them;
// both answer tests/golden/judged.json).
//
// What is believed: the wallet's own list of its outputs and addresses, the terms that were agreed, the
// scripts' hashes of this page, and for a channel that is open what the chain door shows. Nothing else.

import { concat, fromHex, nth, same, toHex } from "../crypto/bytes.js";
import { decode, encode, Tag } from "../crypto/cbor.js";
import { ADA_SCRIPTS } from "./scripts.js";
import { asMap, big, items, readOutput, readTx, refOf, row } from "./transaction.js";

/**
 * @import { Bytes } from "../crypto/bytes.js"
 * @import { Whole } from "../crypto/cbor.js"
 * @import { Consts } from "../money/records.js"
 * @import { Output, Tx } from "./transaction.js"
 */

/** @typedef {{ref: string, address: Bytes, lovelace: bigint, claimed: bigint, open: boolean}} ChannelOutput as the chain shows it */

/**
 * What a transaction is held against.
 * @typedef {object} Asked
 * @property {boolean} mainnet
 * @property {Bytes[]} own the wallet's addresses
 * @property {Map<string, Output>} utxos its outputs by `txid#index`
 * @property {Consts} consts of the terms
 * @property {bigint} least lovelace that go into the channel
 * @property {bigint} most
 * @property {number | null} slot of now, or null where nobody knows it
 * @property {number} nowMs
 * @property {Map<string, string>} references hash by ref, as the chain shows them
 */

/** @typedef {Asked & ({step: "open", channel: null} | {step: "topup" | "close", channel: ChannelOutput})} Step */
/** @typedef {{code: string, ok: boolean, text: string, wrong: string}} Check *text* says what holds, *wrong* what does not */
/** @typedef {{id: string, fee: bigint, amount: bigint, checks: Check[], ok: boolean}} Judged *amount* goes into the channel */

/**
 * Where things stand in the transaction.
 * @typedef {object} Place
 * @property {Set<string>} mine hex of the wallet's addresses
 * @property {Set<string>} homes hex of where its channels can be
 * @property {Output | undefined} first the channel
 * @property {Output[]} others
 * @property {string[]} foreign inputs that are the channel
 * @property {bigint} amount
 */

/** @typedef {[code: string, text: string, fault: (tx: Tx, wanted: Step, at: Place) => string | null]} Rule */

const FEE_MOST = 2_000_000n;
const FORFEIT_MOST = 5_000_000n;
const LIVES_S = 3600; // the longest that a transaction may wait for its block
/** @type {unknown[]} */
const PLAIN = [0, 1, 2, 3, 8, 15]; // inputs, outputs, fee, bounds, network id
const SCRIPTED = [...PLAIN, 5, 11, 13, 14, 16, 17, 18]; // and settle's account, script data, collateral, signers, references
/** @type {{[field: string]: string}} */
const NAMES = {
  4: "a certificate", 5: "a withdrawal of rewards", 6: "a protocol update", 7: "attached data", 9: "a mint", 11: "script data",
  13: "collateral", 14: "required signers", 16: "a collateral return", 17: "collateral", 18: "reference inputs", 19: "a vote",
  20: "a proposal", 21: "a treasury value", 22: "a donation",
};
const ADA = 1_000_000n;
const REDEEMERS = 5; // of the witness set
/** @type {(lovelace: bigint) => string} */
const money = (lovelace) => `₳${lovelace / ADA}.${String(lovelace % ADA < 0n ? -(lovelace % ADA) : lovelace % ADA).padStart(6, "0")}`;
/**
 * @template T
 * @param {T[]} list
 * @param {(one: T) => bigint} of
 */
const sum = (list, of) => list.reduce((total, one) => total + of(one), 0n);
/**
 * Where a consumer's channels are: the stub with the stake part of the wallet's address.
 * @param {Bytes} stubHash
 * @param {Bytes} wallet address
 * @param {boolean} mainnet
 */
export function channelAddress(stubHash, wallet, mainnet) {
  const kind = (wallet[0] ?? 0xff) >> 4;
  const based = kind <= 3 && wallet.length === 57;
  const header = (based ? (kind >= 2 ? 3 : 1) : 7) << 4;
  return concat(Uint8Array.of(header | (mainnet ? 1 : 0)), stubHash, based ? wallet.slice(29) : new Uint8Array());
}

/**
 * The datum of a channel: Open, or Closing where *expireAt* is given.
 * @param {Consts} consts
 * @param {Whole} claimed
 * @param {Whole} [expireAt]
 */
export function stageDatum(consts, claimed, expireAt) {
  const list = [consts.session_vk, consts.adapter_vkh, consts.payout, consts.consumer_vkh, consts.close_period_ms, consts.fee_bps];
  return encode(expireAt === undefined ? new Tag(121, [list, claimed]) : new Tag(122, [list, claimed, expireAt]));
}

/** @type {(address: Bytes) => string} */
const shown = (address) => `${toHex(address).slice(0, 16)}…${toHex(address).slice(-8)}`;

/**
 * Each rule, with its word on this transaction.
 * @param {Bytes} bytes
 * @param {Step} wanted
 * @returns {Judged}
 */
export function judge(bytes, wanted) {
  let tx;
  try {
    tx = readTx(bytes);
  } catch {
    return { id: "", fee: 0n, amount: 0n, checks: [{ code: "BYTES", ok: false, text: "its bytes are plain", wrong: "its bytes are not those of a plain, unsigned transaction" }], ok: false };
  }
  const at = place(tx, wanted);
  const checks = [{ code: "BYTES", ok: true, text: "its bytes are plain", wrong: "" }, ...RULES.map((rule) => check(rule, tx, wanted, at))];
  return { id: tx.id, fee: tx.fee, amount: at.amount, checks, ok: checks.every(({ ok }) => ok) };
}

/** @type {(rule: Rule, tx: Tx, wanted: Step, at: Place) => Check} */
function check([code, text, fault], tx, wanted, at) {
  let wrong;
  try {
    wrong = fault(tx, wanted, at);
  } catch {
    wrong = "it is not readable there";
  }
  return { code, ok: !wrong, text, wrong: wrong || "" };
}

/**
 * What was wrong, for a person; empty if nothing was.
 * @type {(judged: Judged) => string}
 */
export const faultOf = ({ checks }) => checks.find(({ ok }) => !ok)?.wrong ?? "";

/** @type {(tx: Tx, wanted: Step) => Place} */
function place(tx, { channel, step, mainnet, own }) {
  const stub = fromHex(ADA_SCRIPTS.stub);
  const mine = new Set(own.map(toHex));
  const homes = new Set(own.map((address) => toHex(channelAddress(stub, address, mainnet))));
  const [first, others] = step === "open" ? split(tx.outputs, homes) : [tx.outputs[0], tx.outputs.slice(1)];
  const foreign = tx.inputs.filter((ref) => ref === channel?.ref);
  return { mine, homes, first, others, foreign, amount: first?.lovelace ?? 0n };
}

/**
 * The channel first, wherever it stands; the others in their order.
 * @type {(outputs: Output[], homes: Set<string>) => [Output | undefined, Output[]]}
 */
function split(outputs, homes) {
  const at = Math.max(0, outputs.findIndex((output) => homes.has(toHex(output.address))));
  return [outputs[at], outputs.filter((_, i) => i !== at)];
}

/** @type {(refs: string[], utxos: Map<string, Output>) => bigint} */
const lovelaceOf = (refs, utxos) => sum(refs, (ref) => utxos.get(ref)?.lovelace ?? 0n);

/**
 * In the order in which they are asked; each null, or what is wrong.
 * @type {Rule[]}
 */
const RULES = [
  ["FIELDS", "it does nothing else", (tx, { step }) => {
    const known = step === "open" ? PLAIN : SCRIPTED;
    const odd = tx.fields.find((field) => !known.includes(field));
    if (odd !== undefined) return `it carries ${NAMES[String(odd)] ?? `a part that no step of a channel needs (${String(odd)})`}`;
    return tx.fields.includes(2) && tx.fields.includes(3) ? null : "it has no fee or never expires";
  }],
  ["NETWORK", "it is for this network", (tx, { mainnet }) => {
    const network = tx.body.get(15);
    if (network !== undefined && network !== (mainnet ? 1 : 0)) return "it is for another network";
    return tx.outputs.every(({ address }) => (nth(address, 0) & 15) === (mainnet ? 1 : 0)) ? null : "it pays an address of another network";
  }],
  ["INPUTS", "it spends nothing but your own outputs and this channel", (tx, { utxos, channel }, { foreign }) => {
    if (channel && foreign.length !== 1) return "it does not spend this channel, as the chain shows it";
    const odd = tx.inputs.find((ref) => !utxos.has(ref) && ref !== channel?.ref);
    return odd ? `it spends ${odd.slice(0, 12)}…, which is neither yours nor this channel` : null;
  }],
  ["CHANNEL", "the money is at the channel's script, with your own stake part", (tx, { channel }, { first, homes }) => {
    if (!first || !homes.has(toHex(first.address))) return `the money would go to ${first ? shown(first.address) : "nobody"}, which is not a channel of yours`;
    if (channel && !same(first.address, channel.address)) return "the channel would move to another address";
    if (first.strange || first.tokens) return "the channel would hold something else than ADA and its rules";
    return tx.outputs.filter(({ address }) => homes.has(toHex(address))).length === 1 ? null : "it makes a second channel";
  }],
  ["DATUM", "its rules are those of the signed terms", (tx, { step, consts, channel, nowMs }, { first }) => {
    if (!first?.datum) return "the channel would have no rules";
    if (step !== "close") return same(first.datum, stageDatum(consts, step === "open" ? 0 : channel.claimed)) ? null : "the channel's rules would not be those of the terms";
    const stage = decode(first.datum);
    const expire = stage instanceof Tag && Array.isArray(stage.value) && stage.value.length === 3 ? big(stage.value[2]) : 0n;
    if (!same(first.datum, stageDatum(consts, channel.claimed, expire))) return "the channel would not be closing under the rules of the terms";
    const rest = Number(expire) - Number(consts.close_period_ms) - nowMs;
    return Math.abs(rest) <= LIVES_S * 1000 ? null : "the close period would not be that of the terms";
  }],
  ["STAGE", "the channel is open", (tx, { step, channel }) => (step === "open" || channel.open ? null : "the channel is closing already")],
  ["VALUE", "it holds what was agreed, no more", (tx, { step, channel, least, most }, { first }) => {
    const held = (first?.lovelace ?? 0n) - (channel?.lovelace ?? 0n);
    return held >= least && held <= most ? null : `${money(held)} would go into the channel, not ${money(least)}${step === "open" ? " and the reserve" : ""}`;
  }],
  ["CHANGE", "everything else comes back to your address", (tx, _, { others, mine }) => {
    const odd = others.find(({ address }) => !mine.has(toHex(address)));
    if (odd) return `${money(odd.lovelace)} would go to a stranger, ${shown(odd.address)}`;
    return others.every(({ datum, strange }) => !datum && !strange) ? null : "your change would be locked with data";
  }],
  ["FEE", "the fee is an ordinary one", (tx) => (tx.fee > 0n && tx.fee <= FEE_MOST ? null : `the fee would be ${money(tx.fee)}`)],
  ["LEAVING", "what leaves your wallet is what goes into the channel, and the fee", (tx, { utxos, channel }, { first, others }) => {
    const leaving = lovelaceOf(tx.inputs, utxos) - sum(others, ({ lovelace }) => lovelace);
    const rewards = sum([...asMap(tx.body.get(5)).values()], big);
    const due = (first?.lovelace ?? 0n) - (channel?.lovelace ?? 0n) + tx.fee - rewards;
    return leaving === due ? null : `${money(leaving)} would leave your wallet, not ${money(due)}`;
  }],
  ["EXPIRY", "it is void within the hour", (tx, { slot }) => {
    const until = tx.body.get(3);
    if (typeof until !== "number" || big(tx.body.get(8) ?? 0) > until) return "its bounds in time are none";
    return slot === null || until <= slot + LIVES_S ? null : "it could be sent long after today";
  }],
  ["COLLATERAL", "nothing more can be forfeited than 5 ADA of your own", (tx, { utxos }, { mine }) => {
    const pledged = items(tx.body.get(13)).map(refOf);
    if (pledged.some((ref) => !utxos.has(ref))) return "it pledges an output that is not yours";
    const back = tx.body.has(16) ? readOutput(tx.body.get(16)) : null;
    if (back && (!mine.has(toHex(back.address)) || back.datum || back.strange)) return "the rest of the collateral would go to a stranger";
    const lost = lovelaceOf(pledged, utxos) - (back?.lovelace ?? 0n);
    if (lost < 0n || lost > FORFEIT_MOST) return `${money(lost)} could be forfeited as collateral`;
    return tx.body.has(17) && big(tx.body.get(17)) !== lost ? "its total collateral is not what it pledges" : null;
  }],
  ["SIGNERS", "it needs no signature but yours", (tx, { own }) => {
    const mine = new Set(own.map((address) => toHex(address.slice(1, 29))));
    return items(tx.body.get(14)).every((hash) => hash instanceof Uint8Array && mine.has(toHex(hash))) ? null : "it is made for another signer beside you";
  }],
  ["WITHDRAWAL", "no rewards are withdrawn but the script's own", (tx, { step, mainnet }) => {
    const account = `${mainnet ? "f1" : "f0"}${ADA_SCRIPTS.settle}`;
    const accounts = [...asMap(tx.body.get(5)).keys()].map((key) => (key instanceof Uint8Array ? toHex(key) : ""));
    if (step === "open") return accounts.length ? "it withdraws rewards" : null;
    return accounts.length === 1 && accounts[0] === account ? null : "it withdraws rewards of another account than the script's";
  }],
  ["STEPS", "it takes this one step", (tx, wanted) => stepsFault(tx, wanted)],
  ["REFERENCES", "it refers to the channel's scripts alone", (tx, { references }) => {
    const known = Object.values(ADA_SCRIPTS);
    const odd = items(tx.body.get(18)).map(refOf).find((ref) => !known.includes(references.get(ref) ?? ""));
    return odd ? `it refers to ${odd.slice(0, 12)}…, which is not the channel's script` : null;
  }],
];

/**
 * Redeemers of a witness set in either form, `[tag, index, data]`.
 * @type {(value: unknown) => unknown[][]}
 */
function redeemersOf(value) {
  if (value instanceof Map) return [...value].map(([at, told]) => [...row(at, 2), row(told, 2)[0]]);
  return items(value).map((one) => row(one, 4).slice(0, 3));
}

/**
 * What else the transaction tells the scripts.
 * @type {(tx: Tx, wanted: Step) => string | null}
 */
function stepsFault(tx, { step, channel, least }) {
  const others = [...tx.witnesses.keys()].filter((key) => step === "open" || key !== REDEEMERS);
  if (others.length) return "it brings scripts, data or signatures of somebody else's";
  if (step === "open") return null;
  const rows = redeemersOf(tx.witnesses.get(REDEEMERS));
  const names = rows.map(([tag, index]) => `${tag}.${index}`);
  if (new Set(names).size !== names.length) return "it tells the script two things at once";
  const spent = [...tx.inputs].sort((a, b) => inOrder(a, b)).indexOf(channel.ref);
  if (names.length !== 2 || !names.includes(`0.${spent}`)) return "it runs another script than this channel's";
  return takes(step, least, rows.find(([tag, index]) => tag === 3 && index === 0)?.[2]) ? null : "it takes another step than you asked for";
}

/**
 * Whether *steps*, as settle is told them, are this one alone.
 * @type {(step: "topup" | "close", added: bigint, steps: unknown) => boolean}
 */
function takes(step, added, steps) {
  const [only] = Array.isArray(steps) && steps.length === 1 ? steps : [];
  const [number, asked] = only instanceof Tag && Array.isArray(only.value) ? [only.number, only.value] : [null, []];
  return step === "topup" ? number === 124 && asked.length === 1 && big(asked[0]) === added : number === 125 && asked.length === 0;
}

/** @type {(a: string, b: string) => number} */
const inOrder = (a, b) => {
  const [[one = "", i], [other = "", j]] = [a.split("#"), b.split("#")];
  return one === other ? Number(i) - Number(j) : one < other ? -1 : 1;
};
