// Everything that a transaction does, judged from its own bytes before a wallet is asked to sign it. The
// rules, their order and their codes are those of marketplace/chain/judged.py (docs/security.md lists them;
// both answer tests/golden/judged.json).
//
// What is believed: the wallet's own list of its outputs and addresses, the terms that were agreed, the
// scripts' hashes of this page, and for a channel that is open what the chain door shows. Nothing else.

import { blake2b } from "./blake2b.js";
import { concat, fromHex, same, toHex } from "./bytes.js";
import { decode, encode, rawItems, Tag } from "./cbor.js";
import { SCRIPTS } from "./scripts.js";

const FEE_MOST = 2_000_000n;
const FORFEIT_MOST = 5_000_000n;
const LIVES_S = 3600; // the longest that a transaction may wait for its block
const PLAIN = [0, 1, 2, 3, 8, 15]; // inputs, outputs, fee, bounds, network id
const SCRIPTED = [...PLAIN, 5, 11, 13, 14, 16, 17, 18]; // and settle's account, script data, collateral, signers, references
const NAMES = {
  4: "a certificate", 5: "a withdrawal of rewards", 6: "a protocol update", 7: "attached data", 9: "a mint", 11: "script data",
  13: "collateral", 14: "required signers", 16: "a collateral return", 17: "collateral", 18: "reference inputs", 19: "a vote",
  20: "a proposal", 21: "a treasury value", 22: "a donation",
};
const ADA = 1_000_000n;
const big = BigInt;
const theMap = (value) => {
  if (!(value instanceof Map)) throw new Error("no map");
  return value;
};
const items = (value = []) => {
  const list = value instanceof Tag && value.number === 258 ? value.value : value;
  if (!Array.isArray(list)) throw new Error("no list");
  return list;
};
const money = (lovelace) => `₳${lovelace / ADA}.${String(lovelace % ADA < 0n ? -(lovelace % ADA) : lovelace % ADA).padStart(6, "0")}`;
const sum = (list, of) => list.reduce((total, one) => total + of(one), 0n);
const asMap = (value = new Map()) => theMap(value);
const row = (value, length) => {
  if (!Array.isArray(value) || value.length !== length) throw new Error("no row");
  return value;
};
const refOf = (value) => {
  const [id, index] = row(value, 2);
  if (!(id instanceof Uint8Array) || id.length !== 32 || !Number.isInteger(index) || index < 0) throw new Error("no input");
  return `${toHex(id)}#${index}`;
};

/** Whether every head of *bytes* is in its shortest form and of known length, and no map has a key twice: one way to write, and to read, each thing. */
function isPlain(bytes) {
  let at = 0;
  const item = (depth) => {
    if (depth > 32 || at >= bytes.length) return false;
    const head = bytes[at++];
    const [major, info] = [head >> 5, head & 31];
    if (major === 7) return info >= 20 && info <= 22;
    if (info > 27) return false;
    let n = big(info);
    if (info >= 24) {
      const size = 1 << (info - 24);
      if (at + size > bytes.length) return false;
      n = big(`0x${toHex(bytes.subarray(at, at + size))}`);
      at += size;
      if (n < (size === 1 ? 24n : 1n << big(4 * size))) return false;
    }
    if (major <= 1) return true;
    if (major === 6) return item(depth + 1);
    if (n > big(bytes.length)) return false;
    if (major <= 3) return (at += Number(n)) <= bytes.length;
    const keys = new Set();
    for (let turn = 0; turn < Number(n) * (major === 5 ? 2 : 1); turn++) {
      const begun = at;
      if (!item(depth + 1)) return false;
      if (major !== 5 || turn % 2) continue;
      const key = toHex(bytes.subarray(begun, at));
      if (keys.has(key)) return false;
      keys.add(key);
    }
    return true;
  };
  return item(0) && at === bytes.length;
}

const encoded = (value) => {
  if (!(value instanceof Tag && value.number === 24 && value.value instanceof Uint8Array)) throw new Error("no encoded data");
  return value.value;
};

/** `{address, lovelace, tokens, strange, datum}`; *strange*: a script, a datum's hash, anything beside. */
export function readOutput(output) {
  const legacy = Array.isArray(output);
  const [address, value] = legacy ? output : [output.get(0), output.get(1)];
  const lovelace = big(Array.isArray(value) ? value[0] : value);
  const option = legacy ? undefined : output.get(2);
  const beside = legacy ? output.length > 2 : [...output.keys()].some((key) => ![0, 1, 2].includes(key));
  const [kind, data] = option === undefined ? [] : row(option, 2);
  const inline = kind === 1 ? encoded(data) : null;
  if (!(address instanceof Uint8Array) || lovelace < 0n) throw new Error("no output");
  return { address, lovelace, tokens: Array.isArray(value), strange: beside || Boolean(option && !inline), datum: inline };
}

/** The parts of an unsigned transaction; throws for anything that is none in its plain form. */
export function readTx(bytes) {
  const parts = rawItems(bytes);
  if (parts.length !== 4 || !parts.every(isPlain)) throw new Error("four plain parts");
  const [raw, witnesses, valid, attached] = parts;
  const body = decode(raw);
  if (!(body instanceof Map) || valid[0] !== 0xf5 || attached[0] !== 0xf6) throw new Error("a valid body, nothing attached");
  const inputs = items(body.get(0)).map(refOf);
  if (new Set(inputs).size !== inputs.length) throw new Error("an input twice");
  return {
    id: toHex(blake2b(raw)), body, inputs, witnesses: theMap(decode(witnesses)),
    outputs: items(body.get(1)).map(readOutput), fee: big(body.get(2)), fields: [...body.keys()],
  };
}

/** What a transaction refers to, `txid#index`; nothing for one that cannot be read. */
export function referencesOf(bytes) {
  try {
    return items(readTx(bytes).body.get(18)).map(refOf).slice(0, 8);
  } catch {
    return [];
  }
}

/** Where a consumer's channels are: the stub with the stake part of the wallet's address. */
export function channelAddress(stubHash, wallet, mainnet) {
  const kind = wallet[0] >> 4;
  const based = kind <= 3 && wallet.length === 57;
  const header = (based ? (kind >= 2 ? 3 : 1) : 7) << 4;
  return concat(Uint8Array.of(header | (mainnet ? 1 : 0)), stubHash, based ? wallet.slice(29) : new Uint8Array());
}

/** The datum of a channel: Open, or Closing where *expireAt* is given. */
export function stageDatum(consts, claimed, expireAt) {
  const list = [consts.session_vk, consts.adapter_vkh, consts.payout, consts.consumer_vkh, consts.close_period_ms, consts.fee_bps];
  return encode(expireAt === undefined ? new Tag(121, [list, claimed]) : new Tag(122, [list, claimed, expireAt]));
}

const shown = (address) => `${toHex(address).slice(0, 16)}…${toHex(address).slice(-8)}`;

/**
 * Each rule as `{code, ok, text, wrong}`: *text* says what holds, *wrong* what does not. *wanted*:
 * `step` open, topup or close; `mainnet`; `own` the wallet's addresses; `utxos` its outputs by
 * `txid#index`; `consts` of the terms; `least` and `most` lovelace that go into the channel;
 * `channel` `{ref, address, lovelace, claimed, open}` as the chain shows it, or null to open one;
 * `slot` of now, or null where nobody knows it; `nowMs`; `references` hash by ref, as the chain shows them.
 */
export function judge(bytes, wanted) {
  let tx;
  try {
    tx = readTx(bytes);
  } catch {
    return { id: "", fee: 0n, amount: 0n, checks: [{ code: "BYTES", ok: false, text: "its bytes are plain", wrong: "its bytes are not those of a plain, unsigned transaction" }], ok: false };
  }
  const checks = [];
  const rule = (code, text, work) => {
    let wrong;
    try {
      wrong = work();
    } catch {
      wrong = "it is not readable there";
    }
    checks.push({ code, ok: !wrong, text, wrong: wrong || "" });
  };
  checks.push({ code: "BYTES", ok: true, text: "its bytes are plain", wrong: "" });
  const at = place(tx, wanted);
  for (const [code, text, work] of RULES) rule(code, text, () => work(tx, wanted, at));
  return { id: tx.id, fee: tx.fee, amount: at.amount, checks, ok: checks.every(({ ok }) => ok) };
}

/** What was wrong, for a person; empty if nothing was. */
export const faultOf = ({ checks }) => checks.find(({ ok }) => !ok)?.wrong ?? "";

function place(tx, { channel, step, mainnet, own }) {
  const stub = fromHex(SCRIPTS[""].stub);
  const mine = new Set(own.map(toHex));
  const homes = new Set(own.map((address) => toHex(channelAddress(stub, address, mainnet))));
  const [first, ...others] = step === "open" ? split(tx.outputs, homes) : tx.outputs;
  const foreign = tx.inputs.filter((ref) => ref === channel?.ref);
  return { mine, homes, first, others, foreign, amount: first?.lovelace ?? 0n };
}

/** The channel first, wherever it stands; the others in their order. */
function split(outputs, homes) {
  const at = Math.max(0, outputs.findIndex((output) => homes.has(toHex(output.address))));
  return [outputs[at], ...outputs.filter((_, i) => i !== at)];
}

const lovelaceOf = (refs, utxos) => sum(refs, (ref) => utxos.get(ref)?.lovelace ?? 0n);

/** In the order in which they are asked; each null, or what is wrong. */
const RULES = [
  ["FIELDS", "it does nothing else", (tx, { step }) => {
    const known = step === "open" ? PLAIN : SCRIPTED;
    const odd = tx.fields.find((field) => !known.includes(field));
    if (odd !== undefined) return `it carries ${NAMES[odd] ?? `a part that no step of a channel needs (${odd})`}`;
    return tx.fields.includes(2) && tx.fields.includes(3) ? null : "it has no fee or never expires";
  }],
  ["NETWORK", "it is for this network", (tx, { mainnet }) => {
    const network = tx.body.get(15);
    if (network !== undefined && network !== (mainnet ? 1 : 0)) return "it is for another network";
    return tx.outputs.every(({ address }) => (address[0] & 15) === (mainnet ? 1 : 0)) ? null : "it pays an address of another network";
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
    const expire = decode(first.datum)?.value?.[2];
    if (!same(first.datum, stageDatum(consts, channel.claimed, expire ?? 0))) return "the channel would not be closing under the rules of the terms";
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
    if (!Number.isInteger(until) || (tx.body.get(8) ?? 0) > until) return "its bounds in time are none";
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
    return items(tx.body.get(14)).every((hash) => mine.has(toHex(hash))) ? null : "it is made for another signer beside you";
  }],
  ["WITHDRAWAL", "no rewards are withdrawn but the script's own", (tx, { step, mainnet }) => {
    const account = `${mainnet ? "f1" : "f0"}${SCRIPTS[""].settle}`;
    const accounts = [...asMap(tx.body.get(5)).keys()].map(toHex);
    if (step === "open") return accounts.length ? "it withdraws rewards" : null;
    return accounts.length === 1 && accounts[0] === account ? null : "it withdraws rewards of another account than the script's";
  }],
  ["STEPS", "it takes this one step", (tx, wanted, { foreign }) => stepsFault(tx, wanted, foreign)],
  ["REFERENCES", "it refers to the channel's scripts alone", (tx, { references }) => {
    const known = Object.values(SCRIPTS[""]);
    const odd = items(tx.body.get(18)).map(refOf).find((ref) => !known.includes(references.get(ref)));
    return odd ? `it refers to ${odd.slice(0, 12)}…, which is not the channel's script` : null;
  }],
];

/** Redeemers of a witness set in either form, `[tag, index, data]`. */
function redeemersOf(value) {
  if (value instanceof Map) return [...value].map(([at, told]) => [...row(at, 2), row(told, 2)[0]]);
  return items(value).map((one) => row(one, 4).slice(0, 3));
}

function stepsFault(tx, { step, least }, foreign) {
  const others = [...tx.witnesses.keys()].filter((key) => key !== 5);
  if (others.length || (step === "open" && tx.witnesses.size)) return "it brings scripts, data or signatures of somebody else's";
  if (step === "open") return null;
  const rows = redeemersOf(tx.witnesses.get(5));
  const names = rows.map(([tag, index]) => `${tag}.${index}`);
  if (new Set(names).size !== names.length) return "it tells the script two things at once";
  const spent = [...tx.inputs].sort((a, b) => inOrder(a, b)).indexOf(foreign[0]);
  if (names.length !== 2 || !names.includes(`0.${spent}`)) return "it runs another script than this channel's";
  const steps = rows.find(([tag, index]) => tag === 3 && index === 0)?.[2];
  const [only] = Array.isArray(steps) && steps.length === 1 ? steps : [];
  const taken = !(only instanceof Tag && Array.isArray(only.value)) ? "" : only.number === 124 && only.value.length === 1 && big(only.value[0]) === least ? "topup" : only.number === 125 && only.value.length === 0 ? "close" : "";
  return taken === step ? null : "it takes another step than you asked for";
}

const inOrder = (a, b) => {
  const [[one, i], [other, j]] = [a.split("#"), b.split("#")];
  return one === other ? Number(i) - Number(j) : one < other ? -1 : 1;
};
