// The invoice, recomputed in this browser from what both sides signed and from the ledger: the rules of
// docs/invoice.md, in that page's order. The first that fails is the answer: `rule`, `way` (the page's
// word for what is broken) and a text that names channel, lease and receipt. The golden vectors of
// tests/golden/invoices.json hold for this verifier as for the other.

import { fromHex, toHex } from "./bytes.js";
import { verifies } from "./crypto.js";
import { chainFault, constsOf, MOST_INT, readReceipt, readTerms, timeFault, voucherMessage } from "./records.js";
import { parse } from "./strictjson.js";

export class Broken extends Error {
  constructor(rule, way, message) {
    super(message);
    this.rule = rule;
    this.way = way;
  }
}

const big = (value) => BigInt(value ?? 0);
const lesser = (a, b) => (a < b ? a : b);
const beyond = (a, b) => (a > b ? a - b : 0n);
const exact = (n) => (Number.isSafeInteger(Number(n)) ? Number(n) : n);
const sum = (values) => values.reduce((a, b) => a + b, 0n);
const name = (text) => (/^[A-Za-z0-9_.:-]{1,80}$/.test(text) ? text : JSON.stringify(text).slice(0, 80));
const nameChannel = (vk) => `channel ${vk.slice(0, 16)}`;

/** Which receipts of a channel (of *lease*) hang on what was refused, in words, as far as they decode. */
function told(evidence, vk, lease = "") {
  const seqs = new Set();
  for (const { body } of evidence.channels.filter((row) => row.session_vk === vk).flatMap((row) => row.receipts)) {
    try {
      const receipt = readReceipt(fromHex(body));
      if (!lease || receipt.lease === lease) seqs.add(big(receipt.seq));
    } catch {
      continue; // the rules refuse it where it stands
    }
  }
  const sorted = [...seqs].sort((a, b) => (a < b ? -1 : 1));
  if (sorted.length < 2) return sorted.length ? `receipt ${sorted[0]}` : "no receipt";
  return `receipts ${sorted[0]} to ${sorted.at(-1)}`;
}

// --- the form of the evidence ------------------------------------------------------------------------

const MOST_BODY = 8192;

/** The evidence of *text*, in the form that {@link reconcile} takes; Broken "MALFORMED" for anything else. */
export function readEvidence(text) {
  let value;
  try {
    value = parse(text);
  } catch (error) {
    throw new Broken("MALFORMED", "json", error.message);
  }
  return form(value);
}

const fits = (holds, message) => {
  if (!holds) throw new Broken("MALFORMED", "field", message);
};

function hex(row, field, sizes, length = null) {
  const text = row[field];
  fits(typeof text === "string" && /^(?:[0-9a-f]{2})*$/.test(text), `${field} is not lower-case hex`);
  const size = text.length / 2;
  fits(sizes ? sizes.includes(size) : size >= 1 && size <= length, `${field} is ${size} bytes long`);
  return text;
}

const whole = (value, most, field) => {
  fits(typeof value === "bigint" || (typeof value === "number" && Number.isSafeInteger(value)), `${field} is not an integer`);
  fits(value >= 0 && BigInt(value) <= most, `${field} is not within [0, ${most}]`);
  return value;
};
const object = (value, field) => {
  fits(typeof value === "object" && value !== null && !Array.isArray(value), `${field} is not an object`);
  return value;
};
const list = (row, field) => {
  fits(Array.isArray(row[field]), `${field} is not a list`);
  return row[field];
};

/** *value* if every field of it is as the page says; further keys are ignored. */
export function form(value) {
  const top = object(value, "the evidence");
  const leases = list(top, "leases");
  const channels = list(top, "channels");
  fits(typeof top.job === "string" && [...top.job].length <= 64 && top.job !== "" && !/\0|\p{Surrogate}/u.test(top.job), "job is not a text of 1 to 64 characters");
  for (const [i, row] of leases.entries()) {
    object(row, `leases[${i}]`);
    hex(row, "session_signature", [0, 64]);
    hex(row, "terms", null, MOST_BODY);
    hex(row, "adapter_signature", [64]);
    hex(row, "channel", [32]);
  }
  for (const [i, row] of channels.entries()) {
    object(row, `channels[${i}]`);
    hex(row, "session_vk", [32]);
    for (const [k, receipt] of list(row, "receipts").entries()) {
      object(receipt, `receipts[${k}]`);
      hex(receipt, "body", null, MOST_BODY);
      hex(receipt, "signature", [64]);
    }
    hex(row, "open_tx", [0, 32]);
    if (row.index !== undefined) whole(row.index, 65_535n, "index");
    if (row.voucher === null || row.voucher === undefined) continue;
    whole(object(row.voucher, "voucher").cumulative, MOST_INT, "cumulative");
    hex(row.voucher, "signature", [64]);
  }
  return top;
}

// --- the rules ---------------------------------------------------------------------------------------

/**
 * The invoice of `{job, leases, channels}`; Broken names the rule. *ledger*: for each channel
 * `{session_vk, consts, funded, claimed, refunded, held, ended}` or null. Money is BigInt.
 */
export async function reconcile(value, ledger = []) {
  const evidence = form(value);
  const agreed = await terms(evidence);
  const books = pair(evidence, agreed);
  for (const book of books) {
    for (const row of book.row.receipts) await take(book, row);
    await voucher(book);
  }
  for (const [i, book] of books.entries()) if (ledger[i]) compare(book, ledger[i]);
  return bill(evidence.job, books, ledger);
}

/** *evidence*, if it is of *job*. */
export function asked(evidence, job) {
  if (evidence.job === job) return evidence;
  throw new Broken("I10", "asked", `the evidence is of job ${name(evidence.job)}, and ${name(job)} was asked for`);
}

/** I1 and I10: each row of `leases` in turn, then whether the job is among them. */
async function terms(evidence) {
  const found = new Map();
  for (const [i, row] of evidence.leases.entries()) {
    const body = fromHex(row.terms);
    const one = reading("I1", "terms", () => `${nameChannel(row.channel)}, lease in row ${i}, ${told(evidence, row.channel)}`, () => readTerms(body));
    const need = (way, holds, why) => {
      if (!holds) throw new Broken("I1", way, `${nameChannel(row.channel)}, lease ${name(one.lease)}, ${told(evidence, row.channel, one.lease)}: ${why}`);
    };
    need("adapter", await verifies(one.adapter_vk, body, fromHex(row.adapter_signature)), "the provider did not sign the terms");
    need("session", await verifies(one.session_vk, body, fromHex(row.session_signature)), "the session key did not sign the terms");
    need("twice", !found.has(one.lease), "the lease has two terms");
    found.set(one.lease, one);
  }
  const all = [...found.values()];
  if (all.length && !all.some((one) => one.job === evidence.job)) {
    const named = all.map((one) => `${name(one.lease)} (${nameChannel(toHex(one.session_vk))}, ${told(evidence, toHex(one.session_vk), one.lease)})`).join(", ");
    throw new Broken("I10", "job", `no lease is of job ${name(evidence.job)}: the terms of lease ${named} name another`);
  }
  return all;
}

function reading(rule, way, where, work) {
  try {
    return work();
  } catch (error) {
    throw new Broken(rule, way, `${where()}: ${error.message}`);
  }
}

/** I2, as far as no ledger is needed: each channel once, each lease on a channel that is here. */
function pair(evidence, agreed) {
  const books = new Map();
  for (const row of evidence.channels) {
    const again = books.has(row.session_vk);
    books.set(row.session_vk, { row, evidence, terms: new Map(), last: null, byLease: new Map(), read: 0 });
    if (!again) continue;
    for (const one of agreed) if (toHex(one.session_vk) === row.session_vk) books.get(row.session_vk).terms.set(one.lease, one);
    refuse(books.get(row.session_vk), "I2", "twice", "the channel stands twice in the evidence");
  }
  for (const [i, one] of agreed.entries()) {
    const { channel } = evidence.leases[i];
    const where = () => `${nameChannel(channel)}, lease ${name(one.lease)}, ${told(evidence, channel, one.lease)}`;
    if (toHex(one.session_vk) !== channel) throw new Broken("I2", "named", `${where()}: its terms are of ${nameChannel(toHex(one.session_vk))}`);
    if (!books.has(channel)) throw new Broken("I2", "absent", `${where()}: the channel is not in the evidence, so none of its receipts is`);
    books.get(channel).terms.set(one.lease, one);
  }
  for (const book of books.values()) {
    if (!book.terms.size) refuse(book, "I2", "bare", "no terms name this channel");
    const rules = new Set([...book.terms.values()].map((one) => `${one.magic}/${one.asset}/${constsOf(one)}`));
    if (rules.size > 1) refuse(book, "I2", "agree", "its leases name different networks, assets or payouts");
  }
  return [...books.values()];
}

/** Throws, and says where: the channel, *receipt*'s lease or all of its leases, the receipt or the last one. */
function refuse(book, rule, way, why, receipt = null, at = null) {
  const names = (receipt ? [receipt.lease] : [...book.terms.keys()]).map(name);
  const leases = names.length ? `lease${names.length > 1 ? "s" : ""} ${names.join(" and ")}` : "no lease";
  const last = book.last ? `last receipt ${book.last.seq}` : told(book.evidence, book.row.session_vk);
  const seq = receipt ? `receipt ${receipt.seq}` : at ? `receipt ${at}` : last;
  throw new Broken(rule, way, `${nameChannel(book.row.session_vk)}, ${leases}, ${seq}: ${why}`);
}

/** I3, I4, I5 and I9 of the channel's next receipt; it is in *book* afterwards. */
async function take(book, row) {
  const body = fromHex(row.body);
  book.read += 1;
  let receipt;
  try {
    receipt = readReceipt(body);
  } catch (error) {
    refuse(book, "I3", "receipt", error.message, null, book.read);
  }
  const need = (rule, way, holds, why) => holds || refuse(book, rule, way, why, receipt);
  const one = book.terms.get(receipt.lease);
  const before = book.byLease.get(receipt.lease) ?? [];
  need("I3", "channel", toHex(receipt.session_vk) === book.row.session_vk, `the receipt is of ${nameChannel(toHex(receipt.session_vk))}`);
  need("I3", "lease", one, "the receipt is for a lease without terms");
  need("I3", "signature", await verifies(one.adapter_vk, body, fromHex(row.signature)), "the provider of the terms did not sign it");
  const chain = chainFault(receipt, book.last, before.at(-1) ?? null, one.rate_micro);
  need("I4", chain?.way, !chain, chain?.why);
  need("I5", "resource", receipt.resource === one.resource, `bills ${receipt.resource}, the terms say ${one.resource}`);
  need("I5", "device", toHex(receipt.device) === toHex(one.devices), "names other devices than the terms");
  need("I5", "ceiling", big(receipt.lease_owed) <= big(one.ceiling), `the lease owes ${receipt.lease_owed}, above its ceiling of ${one.ceiling}`);
  const time = timeFault(receipt, before.at(-1) ?? null, one.units_milli);
  need("I9", time?.way, !time, time?.why);
  if (before.length) before.push(receipt);
  else book.byLease.set(receipt.lease, [receipt]);
  book.last = receipt;
}

/** I6: the consumer signed for it. */
async function voucher(book) {
  const given = book.row.voucher;
  if (!given) return;
  const ok = await verifies(fromHex(book.row.session_vk), voucherMessage(given.cumulative), fromHex(given.signature));
  if (!ok) refuse(book, "I6", "signature", "the voucher is not signed by the channel's session key");
}

const owedOn = (book) => big(book.last?.channel_owed);
const signedOn = (book) => big(book.row.voucher?.cumulative);

/** The ledger's part of I2, I7 and I8. */
function compare(book, facts) {
  const need = (rule, way, holds, why) => holds || refuse(book, rule, way, why);
  const [one] = book.terms.values();
  const consts = [one.session_vk, one.adapter_vkh, one.payout, one.consumer_vkh].map(toHex).concat([one.close_period_ms, one.fee_bps].map(String));
  need("I2", "ledger", facts.session_vk === book.row.session_vk && facts.consts.map(String).join() === consts.join(), "the channel on the ledger is not the one of the terms");
  const [claimed, refunded, held, funded] = [facts.claimed, facts.refunded, facts.held, facts.funded].map(big);
  const [signed, owed] = [signedOn(book), owedOn(book)];
  need("I7", "signed", claimed <= signed, `${claimed} lovelace were claimed, ${signed} were signed for`);
  const over = `over-claimed ${claimed - owed}: ${claimed} lovelace were claimed, ${owed} were delivered; the ${signed - owed} signed ahead are an allowance, not a due`;
  need("I7", "delivered", claimed <= owed, over);
  const due = lesser(signed, owed);
  need("I7", "due", !facts.ended || claimed === due, `the channel ended with ${claimed} claimed, ${due} were due`);
  need("I8", "sum", funded === claimed + refunded + held, `${funded} went in; ${claimed} claimed, ${refunded} refunded and ${held} held are not that`);
}

// --- the bill ----------------------------------------------------------------------------------------

function bill(job, books, ledger) {
  const lines = books.flatMap((book) =>
    [...book.byLease].filter(([lease]) => book.terms.get(lease).job === job).map(([lease, found]) => line(book.terms.get(lease), found)),
  );
  const channels = books.map((book, i) => {
    const [signed, owed, facts] = [signedOn(book), owedOn(book), ledger[i] ?? null];
    return { channel: book.row.session_vk, owed, signed, ahead: beyond(signed, owed), facts };
  });
  return {
    job, lines, channels,
    owed: sum(lines.map(({ owed }) => owed)),
    unsigned: sum(channels.map(({ owed, signed }) => beyond(owed, signed))),
    ahead: sum(channels.map(({ ahead }) => ahead)), // signed for beyond what was delivered: nobody's due
    reconciled: channels.length > 0 && channels.every(({ facts, signed, owed }) => facts?.ended && big(facts.claimed) === lesser(signed, owed)),
  };
}

function line(one, found) {
  const [first, last] = [found[0], found.at(-1)];
  const lost = new Map();
  for (const receipt of found) for (const [cause, ms] of receipt.lost) lost.set(cause, big(lost.get(cause)) + big(ms));
  return {
    lease: one.lease, provider: one.provider, channel: toHex(one.session_vk), resource: one.resource,
    units_milli: one.units_milli, rate_micro: one.rate_micro, ticks: found.length,
    started_wall_ms: exact(big(first.wall_ms) - (big(first.t1_ms) - big(first.t0_ms))), ended_wall_ms: last.wall_ms,
    lease_ms: last.t1_ms, unit_ms: last.unit_ms_total, owed: big(last.lease_owed), ceiling: big(one.ceiling), final: last.final,
    lost: [...lost].filter(([, ms]) => ms > 0n).sort(([a], [b]) => (a < b ? -1 : 1)).map(([cause, ms]) => ({ cause, ms: exact(ms) })),
  };
}
