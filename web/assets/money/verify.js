// The invoice, recomputed in this browser from what both sides signed and from the ledger: the rules of
// docs/invoice.md, in that page's order. The first that fails is the answer: `rule`, `way` (the page's
// word for what is broken) and a text that names channel, lease and receipt. The golden vectors of
// tests/golden/invoices.json hold for this verifier as for the other.

import { fromHex, messageOf, nth, toHex } from "../crypto/bytes.js";
import { verifies } from "../crypto/ed25519.js";
import { Broken, form, name } from "./evidence.js";
import { compareHop, hopLine, isSettled, readHops, routeLine } from "./hops.js";
import { chainFault, constsOf, readAnyTerms, readReceipt, timeFault, voucherMessage } from "./records.js";
import { passageOf } from "./routes.js";

/**
 * @import { Bytes } from "../crypto/bytes.js"
 * @import { ChannelPart, Evidence, Facts, ReceiptPart } from "./evidence.js"
 * @import { Whole } from "../crypto/cbor.js"
 * @import { HopBook, HopLine, RouteLine } from "./hops.js"
 * @import { Resource } from "./kinds.js"
 * @import { AnyTerms, Receipt, Terms } from "./records.js"
 * @import { Passage } from "./routes.js"
 */

/**
 * A channel while it is read.
 * @typedef {object} ChannelBook
 * @property {ChannelPart} row
 * @property {Evidence} evidence
 * @property {Map<string, Terms>} terms by lease
 * @property {Receipt | null} last
 * @property {Map<string, Receipt[]>} byLease
 * @property {number} read receipts so far
 * @property {boolean} routed it is no channel of its own, but the receipts of a lease that hops pay for
 */

/**
 * One lease on the bill.
 * @typedef {object} BillLine
 * @property {string} lease
 * @property {string} provider
 * @property {string} channel
 * @property {Resource} resource
 * @property {Whole} units_milli
 * @property {Whole} rate_micro
 * @property {number} ticks
 * @property {Whole} started_wall_ms
 * @property {Whole} ended_wall_ms
 * @property {Whole} lease_ms
 * @property {Whole} unit_ms
 * @property {bigint} owed
 * @property {bigint} ceiling
 * @property {boolean} final
 * @property {{cause: string, ms: Whole}[]} lost
 */

/** @typedef {{channel: string, owed: bigint, signed: bigint, ahead: bigint, facts: Facts | null}} ChannelLine */

/**
 * @typedef {object} Bill
 * @property {string} job
 * @property {BillLine[]} lines
 * @property {ChannelLine[]} channels
 * @property {bigint} owed
 * @property {bigint} unsigned delivered, and not signed for
 * @property {bigint} ahead signed for beyond what was delivered: nobody's due
 * @property {boolean} reconciled
 * @property {bigint} [route_fee] this and what follows: with routed leases only
 * @property {bigint} [withheld] signed for to a router, and not seen to reach the provider
 * @property {bigint} [unshown] claimed over hops for leases that are not in the evidence
 * @property {RouteLine[]} [routes]
 * @property {HopLine[]} [hops]
 */


/** @type {(value: Whole | null | undefined) => bigint} */
const big = (value) => BigInt(value ?? 0);
/** @type {(a: bigint, b: bigint) => bigint} */
const lesser = (a, b) => (a < b ? a : b);
/** @type {(a: bigint, b: bigint) => bigint} */
const beyond = (a, b) => (a > b ? a - b : 0n);
/** @type {(n: bigint) => Whole} */
const exact = (n) => (Number.isSafeInteger(Number(n)) ? Number(n) : n);
/** @type {(values: bigint[]) => bigint} */
const sum = (values) => values.reduce((a, b) => a + b, 0n);
/** @type {(vk: string) => string} */
const nameChannel = (vk) => `channel ${vk.slice(0, 16)}`;

/**
 * Which receipts of a channel (of *lease*) hang on what was refused, in words, as far as they decode.
 * @type {(evidence: Evidence, vk: string, lease?: string) => string}
 */
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

// --- the rules ---------------------------------------------------------------------------------------

/**
 * The invoice of `{job, leases, channels}`; Broken names the rule.
 * @param {unknown} value
 * @param {(Facts | null)[]} ledger for each channel, then for each hop
 * @returns {Promise<Bill>}
 */
export async function reconcile(value, ledger = []) {
  const evidence = form(value);
  const { agreed, passages } = await terms(evidence);
  const books = pair(evidence, agreed, new Set(passages.map((one) => one.terms.lease)));
  for (const book of books) {
    for (const row of book.row.receipts) await take(book, row);
    await voucher(book);
  }
  const owed = new Map(books.flatMap((book) => [...book.terms.keys()].map((lease) => [lease, owedOn(book)])));
  const owedOf = (/** @type {string} */ lease) => owed.get(lease) ?? 0n; // of routed leases: alone on their books
  const hang = (/** @type {string} */ vk, lease = "") => told(evidence, vk, lease);
  const hops = await readHops(evidence, passages, owedOf, hang);
  for (const [i, book] of books.entries()) if (!book.routed) compare(book, ledger[i] ?? null);
  const ofHops = ledger.slice(books.length);
  for (const [i, hop] of hops.entries()) compareHop(hop, ofHops[i] ?? null, hang);
  return bill(evidence.job, books, ledger, hops, passages.map((one) => [one, owedOf(one.terms.lease)]));
}

/**
 * I1, I11 and I10: each row of `leases` in turn, then whether the job is among them.
 * @type {(evidence: Evidence) => Promise<{agreed: Terms[], passages: Passage[]}>}
 */
async function terms(evidence) {
  /** @type {Map<string, AnyTerms>} */
  const found = new Map();
  /** @type {Passage[]} */
  const passages = [];
  for (const [i, row] of evidence.leases.entries()) {
    const body = fromHex(row.terms);
    const one = reading("I1", "terms", () => `${nameChannel(row.channel)}, lease in row ${i}, ${told(evidence, row.channel)}`, () => readAnyTerms(body));
    const need = (/** @type {string} */ way, /** @type {boolean} */ holds, /** @type {string} */ why, rule = "I1") => {
      if (!holds) throw new Broken(rule, way, `${nameChannel(row.channel)}, lease ${name(one.lease)}, ${told(evidence, row.channel, one.lease)}: ${why}`);
    };
    need("adapter", await verifies(one.adapter_vk, body, fromHex(row.adapter_signature)), "the provider did not sign the terms");
    need("session", await verifies(one.session_vk, body, fromHex(row.session_signature)), "the session key did not sign the terms");
    need("twice", !found.has(one.lease), "the lease has two terms");
    const { passage, fault } = await passageOf(one, body, row.route ?? null);
    need(fault?.way ?? "", !fault, fault?.why ?? "", "I11");
    if (passage) passages.push(passage);
    found.set(one.lease, one);
  }
  const all = [...found.values()];
  if (all.length && !all.some((one) => one.job === evidence.job)) {
    const named = all.map((one) => `${name(one.lease)} (${nameChannel(toHex(one.session_vk))}, ${told(evidence, toHex(one.session_vk), one.lease)})`).join(", ");
    throw new Broken("I10", "job", `no lease is of job ${name(evidence.job)}: the terms of lease ${named} name another`);
  }
  return { agreed: all, passages };
}

/**
 * @template T
 * @param {string} rule
 * @param {string} way
 * @param {() => string} where
 * @param {() => T} work
 * @returns {T}
 */
function reading(rule, way, where, work) {
  try {
    return work();
  } catch (error) {
    throw new Broken(rule, way, `${where()}: ${messageOf(error)}`);
  }
}

/**
 * I2, as far as no ledger is needed: each channel once, each lease on a channel that is here; a *routed* one on
 * no channel that is more than its receipts (I11).
 * @type {(evidence: Evidence, agreed: Terms[], routed: Set<string>) => ChannelBook[]}
 */
function pair(evidence, agreed, routed) {
  /** @type {Map<string, ChannelBook>} */
  const books = new Map();
  for (const row of evidence.channels) {
    /** @type {ChannelBook} */
    const book = { row, evidence, terms: new Map(), last: null, byLease: new Map(), read: 0, routed: false };
    if (books.has(row.session_vk)) {
      for (const one of agreed) if (toHex(one.session_vk) === row.session_vk) book.terms.set(one.lease, one);
      refuse(book, "I2", "twice", "the channel stands twice in the evidence");
    }
    books.set(row.session_vk, book);
  }
  for (const [i, one] of agreed.entries()) {
    const { channel } = nth(evidence.leases, i);
    const where = () => `${nameChannel(channel)}, lease ${name(one.lease)}, ${told(evidence, channel, one.lease)}`;
    if (toHex(one.session_vk) !== channel) throw new Broken("I2", "named", `${where()}: its terms are of ${nameChannel(toHex(one.session_vk))}`);
    const book = books.get(channel);
    if (!book) throw new Broken("I2", "absent", `${where()}: the channel is not in the evidence, so none of its receipts is`);
    book.terms.set(one.lease, one);
  }
  for (const book of books.values()) {
    if (!book.terms.size) refuse(book, "I2", "bare", "no terms name this channel");
    const rules = new Set([...book.terms.values()].map((one) => `${one.magic}/${one.asset}/${constsOf(one)}`));
    if (rules.size > 1) refuse(book, "I2", "agree", "its leases name different networks, assets or payouts");
    book.routed = [...book.terms.keys()].some((lease) => routed.has(lease));
    const bare = book.terms.size === 1 && !book.row.open_tx && !book.row.voucher;
    if (book.routed && !bare) refuse(book, "I11", "own", "the key of a routed lease has another lease, a channel or a voucher");
  }
  return [...books.values()];
}

/**
 * Throws, and says where: the channel, *receipt*'s lease or all of its leases, the receipt or the last one.
 * @type {(book: ChannelBook, rule: string, way: string, why: string, receipt?: Receipt | null, at?: number | null) => never}
 */
function refuse(book, rule, way, why, receipt = null, at = null) {
  const names = (receipt ? [receipt.lease] : [...book.terms.keys()]).map(name);
  const leases = names.length ? `lease${names.length > 1 ? "s" : ""} ${names.join(" and ")}` : "no lease";
  const last = book.last ? `last receipt ${book.last.seq}` : told(book.evidence, book.row.session_vk);
  const seq = receipt ? `receipt ${receipt.seq}` : at ? `receipt ${at}` : last;
  throw new Broken(rule, way, `${nameChannel(book.row.session_vk)}, ${leases}, ${seq}: ${why}`);
}

/**
 * I3, I4, I5 and I9 of the channel's next receipt; it is in *book* afterwards.
 * @param {ChannelBook} book
 * @param {ReceiptPart} row
 */
async function take(book, row) {
  const body = fromHex(row.body);
  book.read += 1;
  const receipt = next(book, body);
  const need = (/** @type {string} */ rule, /** @type {string} */ way, /** @type {boolean} */ holds, /** @type {string} */ why) => holds || refuse(book, rule, way, why, receipt);
  const one = book.terms.get(receipt.lease);
  const before = book.byLease.get(receipt.lease) ?? [];
  need("I3", "channel", toHex(receipt.session_vk) === book.row.session_vk, `the receipt is of ${nameChannel(toHex(receipt.session_vk))}`);
  if (!one) return refuse(book, "I3", "lease", "the receipt is for a lease without terms", receipt);
  need("I3", "signature", await verifies(one.adapter_vk, body, fromHex(row.signature)), "the provider of the terms did not sign it");
  const chain = chainFault(receipt, book.last, before.at(-1) ?? null, one.rate_micro);
  if (chain) refuse(book, "I4", chain.way, chain.why, receipt);
  need("I5", "resource", receipt.resource === one.resource, `bills ${receipt.resource}, the terms say ${one.resource}`);
  need("I5", "device", toHex(receipt.device) === toHex(one.devices), "names other devices than the terms");
  need("I5", "ceiling", big(receipt.lease_owed) <= big(one.ceiling), `the lease owes ${receipt.lease_owed}, above its ceiling of ${one.ceiling}`);
  const time = timeFault(receipt, before.at(-1) ?? null, one.units_milli);
  if (time) refuse(book, "I9", time.way, time.why, receipt);
  if (before.length) before.push(receipt);
  else book.byLease.set(receipt.lease, [receipt]);
  book.last = receipt;
}

/** @type {(book: ChannelBook, body: Bytes) => Receipt} */
function next(book, body) {
  try {
    return readReceipt(body);
  } catch (error) {
    return refuse(book, "I3", "receipt", messageOf(error), null, book.read);
  }
}

/**
 * I6: the consumer signed for it.
 * @param {ChannelBook} book
 */
async function voucher(book) {
  const given = book.row.voucher;
  if (!given) return;
  const ok = await verifies(fromHex(book.row.session_vk), voucherMessage(given.cumulative), fromHex(given.signature));
  if (!ok) refuse(book, "I6", "signature", "the voucher is not signed by the channel's session key");
}

/** @type {(book: ChannelBook) => bigint} */
const owedOn = (book) => big(book.last?.channel_owed);
/** @type {(book: ChannelBook) => bigint} */
const signedOn = (book) => big(book.row.voucher?.cumulative);

/**
 * The ledger's part of I2, I7 and I8.
 * @param {ChannelBook} book
 * @param {Facts | null} facts
 */
function compare(book, facts) {
  const [one] = book.terms.values();
  if (!facts || !one) return;
  const need = (/** @type {string} */ rule, /** @type {string} */ way, /** @type {boolean} */ holds, /** @type {string} */ why) => holds || refuse(book, rule, way, why);
  const consts = [one.session_vk, one.adapter_vkh, one.payout, one.consumer_vkh].map(toHex).concat([one.close_period_ms, one.fee_bps].map(String));
  need("I2", "ledger", facts.session_vk === book.row.session_vk && facts.consts.map(String).join() === consts.join(), "the channel on the ledger is not the one of the terms");
  const [claimed, refunded, held, funded] = [big(facts.claimed), big(facts.refunded), big(facts.held), big(facts.funded)];
  const [signed, owed] = [signedOn(book), owedOn(book)];
  need("I7", "signed", claimed <= signed, `${claimed} lovelace were claimed, ${signed} were signed for`);
  const over = `over-claimed ${claimed - owed}: ${claimed} lovelace were claimed, ${owed} were delivered; the ${signed - owed} signed ahead are an allowance, not a due`;
  need("I7", "delivered", claimed <= owed, over);
  const due = lesser(signed, owed);
  need("I7", "due", !facts.ended || claimed === due, `the channel ended with ${claimed} claimed, ${due} were due`);
  need("I8", "sum", funded === claimed + refunded + held, `${funded} went in; ${claimed} claimed, ${refunded} refunded and ${held} held are not that`);
}

// --- the bill ----------------------------------------------------------------------------------------

/** @type {(job: string, books: ChannelBook[], ledger: (Facts | null)[], hops: HopBook[], routed: [Passage, bigint][]) => Bill} */
function bill(job, books, ledger, hops, routed) {
  const lines = books.flatMap((book) =>
    [...book.byLease].flatMap(([lease, found]) => {
      const one = book.terms.get(lease);
      return one?.job === job ? [line(one, found)] : [];
    }),
  );
  const channels = books.flatMap((book, i) => {
    const [signed, owed, facts] = [signedOn(book), owedOn(book), ledger[i] ?? null];
    return book.routed ? [] : [{ channel: book.row.session_vk, owed, signed, ahead: beyond(signed, owed), facts }];
  });
  const ways = routed.filter(([one]) => one.terms.job === job).map(([one, owed]) => routeLine(one, owed, hops));
  const over = hops.map((hop, i) => hopLine(hop, ledger[books.length + i] ?? null));
  const ended = channels.every(({ facts, signed, owed }) => facts?.ended && big(facts.claimed) === lesser(signed, owed));
  return {
    job, lines, channels,
    owed: sum(lines.map(({ owed }) => owed)),
    unsigned: sum([...channels.map(({ owed, signed }) => beyond(owed, signed)), ...ways.map(({ owed, reached }) => owed - reached)]),
    ahead: sum([...channels, ...over].map(({ ahead }) => ahead)), // signed for beyond what was delivered: nobody's due
    reconciled: channels.length + over.length > 0 && ended && over.every(isSettled),
    ...(over.length ? { route_fee: sum(ways.map(({ fee }) => fee)), withheld: sum(ways.map(({ withheld }) => withheld)), unshown: sum(over.map(({ unshown }) => unshown ?? 0n)), routes: ways, hops: over } : {}),
  };
}

/** @type {(one: Terms, found: Receipt[]) => BillLine} */
function line(one, found) {
  const [first, last] = [nth(found, 0), nth(found, found.length - 1)];
  /** @type {Map<string, bigint>} */
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
