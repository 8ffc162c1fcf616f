// The hops of routed leases: who is on which (I11), what its voucher is for (I6), what the provider was paid
// (I12), and the ledger's word (I11, I7, I8), in the order of docs/invoice.md.

import { blake2b } from "../crypto/blake2b.js";
import { fromHex, toHex } from "../crypto/bytes.js";
import { verifies } from "../crypto/ed25519.js";
import { Broken, name } from "./evidence.js";
import { voucherMessage } from "./records.js";
import { feeOf, offerOf, paidMessage, readStatement, signs, treeOf } from "./routes.js";

/**
 * @import { Evidence, Facts, HopPart } from "./evidence.js"
 * @import { Passage, RouterOffer, Statement } from "./routes.js"
 */

/**
 * A hop while it is read.
 * @typedef {object} HopBook
 * @property {HopPart} row
 * @property {boolean} into it pays the router
 * @property {Passage[]} members
 * @property {RouterOffer | null} offer
 * @property {bigint} due the most that may be claimed
 * @property {bigint} blind of it, for leases that are not in the evidence
 * @property {bigint} signed
 */

/**
 * One routed lease on the bill.
 * @typedef {object} RouteLine
 * @property {string} lease
 * @property {string} router
 * @property {number} route_bps
 * @property {bigint} owed
 * @property {bigint} fee
 * @property {bigint | null} signed_in
 * @property {bigint | null} signed_out
 * @property {bigint | null} paid
 * @property {bigint} reached
 * @property {bigint} withheld
 */

/** @typedef {{hop: string, into: boolean, due: bigint, blind: bigint, unshown: bigint | null, signed: bigint, ahead: bigint, facts: Facts | null}} HopLine */
/** @typedef {(vk: string, lease?: string) => string} Told which receipts hang on what was refused */

/** @type {(a: bigint, b: bigint) => bigint} */
const lesser = (a, b) => (a < b ? a : b);
/** @type {(one: Passage, into: boolean) => {hop: string} | null} */
const opening = (one, into) => (into ? one.shown.in : one.shown.out) ?? null;
/** @type {(passages: Passage[], vk: string, into: boolean) => Passage[]} */
const on = (passages, vk, into) => passages.filter((one) => opening(one, into)?.hop === vk);

/**
 * Every hop, each rule in the page's order; Broken names the first that fails.
 * @param {Evidence} evidence
 * @param {Passage[]} passages
 * @param {(lease: string) => bigint} owedOf by its last receipt
 * @param {Told} told
 * @returns {Promise<HopBook[]>}
 */
export async function readHops(evidence, passages, owedOf, told) {
  const hops = evidence.hops ?? [];
  const there = new Set(hops.map(({ session_vk }) => session_vk));
  for (const one of passages) {
    for (const shown of [one.shown.in, one.shown.out]) {
      if (shown && !there.has(shown.hop)) refuseLease(one, "I11", "absent", "a hop that it names is not here", told);
    }
  }
  const seen = new Set(evidence.channels.map(({ session_vk }) => session_vk));
  /** @type {HopBook[]} */
  const books = [];
  for (const row of hops) {
    books.push(await readHop(row, passages, seen, owedOf, told));
    seen.add(row.session_vk);
  }
  for (const one of passages) await checkPaid(one, owedOf(one.terms.lease), told);
  return books;
}

/** @type {(row: HopPart, passages: Passage[], seen: Set<string>, owedOf: (lease: string) => bigint, told: Told) => Promise<HopBook>} */
async function readHop(row, passages, seen, owedOf, told) {
  const into = Boolean(row.offer);
  const [members, others] = [on(passages, row.session_vk, into), on(passages, row.session_vk, !into)];
  /** @type {HopBook} */
  const book = { row, into, members, offer: null, due: 0n, blind: 0n, signed: BigInt(row.voucher?.cumulative ?? 0) };
  const need = (/** @type {string} */ rule, /** @type {string} */ way, /** @type {boolean} */ holds, /** @type {string} */ why) => holds || refuseHop(book, rule, way, why, told);
  need("I11", "twice", !seen.has(row.session_vk), "its key is another channel's or hop's too");
  need("I11", "bare", members.length + others.length > 0, "no lease names this hop");
  need("I11", "side", !others.length, "a lease names it as the other one of its two hops");
  if (row.offer) {
    book.offer = await offerOf(row.offer);
    need("I11", "offer", book.offer !== null, "the router did not sign this offer, or it is none");
  }
  need("I11", "agree", agree(book), "its leases name different routers, networks or payees");
  const statement = stated(row);
  if (!statement) return refuseHop(book, "I6", "statement", "the statement is malformed, or another hop's", told);
  need("I6", "stated", await signs(statement.session_vk, row.statement), "the hop's session key did not sign the statement");
  need("I6", "leaves", sums(row, statement), "the leaves are not those of the statement");
  need("I6", "leaf", placed(book, passages), "a lease has its leaf on another hop, or none, or the first is not the router's offer");
  need("I6", "total", BigInt(statement.total) === book.signed, `the statement sums up to ${statement.total}, the voucher holds ${book.signed}`);
  const voucher = row.voucher;
  need("I6", "voucher", !voucher || (await verifies(fromHex(row.session_vk), voucherMessage(voucher.cumulative), fromHex(voucher.signature))), "the voucher is not signed by the hop's session key");
  reckon(book, owedOf);
  return book;
}

/**
 * One router, one network, one asset; out of the router, one payee as well.
 * @type {(book: HopBook) => boolean}
 */
function agree({ members, into, offer }) {
  const place = (/** @type {{magic: unknown, router_vk: Uint8Array}} */ { magic, router_vk }) => `${magic}/${toHex(router_vk)}`;
  const found = members.map(({ terms, route }) => {
    const payee = into ? "" : [toHex(terms.adapter_vkh), toHex(terms.payout), terms.close_period_ms, terms.fee_bps].join();
    return { place: place({ magic: terms.magic, router_vk: route.router_vk }), rest: `${terms.asset}/${payee}` };
  });
  const whole = new Set(found.map((one) => `${one.place}/${one.rest}`));
  return whole.size === 1 && (!offer || found.every((one) => one.place === place(offer)));
}

/** @type {(row: HopPart) => Statement | null} */
function stated(row) {
  try {
    const statement = readStatement(fromHex(row.statement.body));
    return toHex(statement.session_vk) === row.session_vk ? statement : null;
  } catch {
    return null; // the rule that asks refuses it
  }
}

/** @type {(row: HopPart, statement: Statement) => boolean} */
function sums({ leaves }, statement) {
  const tree = treeOf(leaves);
  const once = new Set(leaves.map(({ terms }) => terms)).size === leaves.length;
  return once && tree !== null && tree.sum === BigInt(statement.total) && BigInt(leaves.length) === BigInt(statement.count) && tree.root === toHex(statement.root);
}

/** @type {(row: HopPart) => string} */
const offerHash = ({ offer }) => (offer ? toHex(blake2b(fromHex(offer.body))) : "");

/** @type {(book: HopBook, passages: Passage[]) => boolean} */
function placed({ row, into }, passages) {
  const held = new Set(row.leaves.map(({ terms }) => terms));
  if (into && row.leaves[0]?.terms !== offerHash(row)) return false;
  return passages.every((one) => {
    const shown = opening(one, into);
    return !shown || (shown.hop === row.session_vk) === held.has(one.hash);
  });
}

/**
 * Due: of the router's offer its hop fee, of a lease that is here what it owes, of the others their whole leaves.
 * @type {(book: HopBook, owedOf: (lease: string) => bigint) => void}
 */
function reckon(book, owedOf) {
  const most = new Map(book.members.map(({ hash, terms, route }) => {
    const owed = owedOf(terms.lease);
    return [hash, owed + (book.into ? feeOf(owed, route.route_bps) : 0n)];
  }));
  if (book.offer) most.set(offerHash(book.row), BigInt(book.offer.hop_fee));
  for (const { terms, amount } of book.row.leaves) {
    const bound = most.get(terms);
    book.due += bound === undefined ? BigInt(amount) : lesser(BigInt(amount), bound);
    if (bound === undefined) book.blind += BigInt(amount);
  }
}

/**
 * I12.
 * @type {(one: Passage, owed: bigint, told: Told) => Promise<void>}
 */
async function checkPaid(one, owed, told) {
  const { paid } = one.shown;
  if (!paid) return;
  const message = paidMessage(one.terms.session_vk, one.terms.lease, paid.amount);
  const ok = await verifies(one.terms.adapter_vk, message, fromHex(paid.signature));
  if (!ok) refuseLease(one, "I12", "paid", "the provider of the terms did not sign this Paid", told);
  if (BigInt(paid.amount) > owed) refuseLease(one, "I12", "owed", `${paid.amount} lovelace were paid, ${owed} are owed`, told);
}

/**
 * The ledger's part of I11, I7 and I8 for a hop.
 * @param {HopBook} book
 * @param {Facts | null} facts
 * @param {Told} told
 */
export function compareHop(book, facts, told) {
  if (!facts) return;
  const need = (/** @type {string} */ rule, /** @type {string} */ way, /** @type {boolean} */ holds, /** @type {string} */ why) => holds || refuseHop(book, rule, way, why, told);
  const [vk, adapter, payout, , close, fee] = facts.consts.map(String);
  const asks = book.offer ? { ...book.offer, fee_bps: 0 } : book.members[0]?.terms;
  const mine = asks && [toHex(asks.adapter_vkh), toHex(asks.payout), asks.close_period_ms, asks.fee_bps].join();
  const { session_vk } = book.row;
  need("I11", "ledger", facts.session_vk === session_vk && vk === session_vk && [adapter, payout, close, fee].join() === mine, "the channel on the ledger is not the one that its payee asks");
  const [claimed, refunded, held, funded] = [BigInt(facts.claimed), BigInt(facts.refunded), BigInt(facts.held), BigInt(facts.funded)];
  need("I7", "hop_signed", claimed <= book.signed, `${claimed} lovelace were claimed, ${book.signed} were signed for`);
  need("I7", "hop_due", claimed <= book.due, `over-claimed ${claimed - book.due}: ${claimed} lovelace were claimed, ${book.due} were due`);
  need("I7", "hop_ended", !facts.ended || claimed >= book.due - book.blind, `the hop ended with ${claimed} claimed, ${book.due - book.blind} at least were due`);
  need("I8", "hop_sum", funded === claimed + refunded + held, `${funded} went in; ${claimed} claimed, ${refunded} refunded and ${held} held are not that`);
}

/** @type {(book: HopBook, rule: string, way: string, why: string, told: Told) => never} */
function refuseHop({ row, into, members }, rule, way, why, told) {
  const leases = members.map(({ terms }) => `lease ${name(terms.lease)} (${told(toHex(terms.session_vk))})`);
  const side = into ? "a hop into the router" : "a hop out of the router";
  throw new Broken(rule, way, `channel ${row.session_vk.slice(0, 16)}, ${side}, ${leases.join(" and ") || "no lease, no receipt"}: ${why}`);
}

/** @type {(one: Passage, rule: string, way: string, why: string, told: Told) => never} */
function refuseLease({ terms }, rule, way, why, told) {
  const vk = toHex(terms.session_vk);
  throw new Broken(rule, way, `channel ${vk.slice(0, 16)}, lease ${name(terms.lease)}, ${told(vk, terms.lease)}: ${why}`);
}

/** @type {(book: HopBook, facts: Facts | null) => HopLine} */
export const hopLine = ({ row, into, due, blind, signed }, facts) => {
  const more = facts && BigInt(facts.claimed) - (due - blind); // for leases that are not shown
  return { hop: row.session_vk, into, due, blind, unshown: more !== null && more < 0n ? 0n : more, signed, ahead: signed - due, facts };
};

/**
 * Whether the hop ended with all that was due for what is shown, and for the rest with no more than was signed for it.
 * @type {(hop: HopLine) => boolean}
 */
export function isSettled({ facts, due, blind }) {
  if (!facts?.ended) return false;
  const claimed = BigInt(facts.claimed);
  return due - blind <= claimed && claimed <= due;
}

/** @type {(one: Passage, owed: bigint, hops: HopBook[]) => RouteLine} */
export function routeLine(one, owed, hops) {
  const bps = Number(one.route.route_bps);
  const leaf = (/** @type {boolean} */ into) => {
    const shown = opening(one, into);
    const amount = shown && hops.find(({ row }) => row.session_vk === shown.hop)?.row.leaves.find(({ terms }) => terms === one.hash)?.amount;
    return amount === null || amount === undefined ? null : BigInt(amount);
  };
  const [given, passed] = [leaf(true), leaf(false)];
  const paid = one.shown.paid ? BigInt(one.shown.paid.amount) : null;
  const greater = (paid ?? 0n) > (passed ?? 0n) ? paid ?? 0n : passed ?? 0n;
  const reached = lesser(owed, greater);
  const reach = lesser(owed, ((given ?? 0n) * 10_000n) / (10_000n + BigInt(bps)));
  return {
    lease: one.terms.lease, router: toHex(one.route.router_vk), route_bps: bps, owed, fee: feeOf(owed, bps),
    signed_in: given, signed_out: passed, paid, reached, withheld: reach > reached ? reach - reached : 0n,
  };
}
