// What this browser answers to a receipt: pure, with its own clock as an argument. The rules and their
// order are those of marketplace/client/payer/decide.py:
//
// 1. forged, foreign, replayed, forked or reordered receipts are refused;
// 2. a receipt follows from the one before: hash chain, totals, owed = floor(ms × rate / 10⁹), and usage
//    that fits into its time: what it calls paused is not billed. No lease owes more than its ceiling, nor
//    is served for longer than its terms let it run;
// 3. never more is signed than own elapsed time + one tick at the rate of the terms, than the lease's
//    ceiling, and in all than the channel holds.
//
// A signed receipt that breaks a rule of 1 or 2 is evidence: the book is *stopped*, nothing more is signed.

import { same, toHex } from "../crypto/bytes.js";
import { verifies } from "../crypto/ed25519.js";
import { brokenRule, outgrown, readReceipt, readTerms, Refused } from "./records.js";
import { owed, unitMs } from "./units.js";

/**
 * @import { Bytes } from "../crypto/bytes.js"
 * @import { Whole } from "../crypto/cbor.js"
 * @import { Receipt, Stage, Terms } from "./records.js"
 */

/**
 * A lease as its payer knows it. Times are milliseconds of this browser's clock, money is lovelace.
 * @typedef {object} PaidLease
 * @property {Bytes} terms
 * @property {Bytes} adapterSignature
 * @property {bigint} cap the most to approve
 * @property {bigint} approved
 * @property {bigint} served milliseconds that its receipts state, less what they call lost
 * @property {Bytes | null} last receipt
 * @property {number | null} since when it runs, as far as this browser saw
 * @property {number | null} pausedAt
 * @property {number} paused for how long, in pauses that are over
 * @property {number | null} ended
 * @property {number} [aheadMs] to sign ahead for with the first answer: it runs on when the page is closed
 * @property {boolean} [over] it will have no further receipt
 */

/**
 * What is known of a channel that is paid from.
 * @typedef {object} Book
 * @property {string} id hex of the session key
 * @property {string} state
 * @property {{[lease: string]: PaidLease}} leases
 * @property {Bytes | null} last receipt of any lease
 * @property {bigint} signed the most that a voucher was signed for
 * @property {bigint} capacity what may be signed for in all
 * @property {string} stopped the code for which nothing more is signed; "" while it pays
 * @property {[seq: Whole, hash: Bytes][]} answered
 * @property {boolean} endSent
 */

/** @typedef {{code: string, kept: bigint}} Note why less was signed than was asked, and how much less */

/**
 * @template {Book} B
 * @typedef {{book: B, sign: bigint | null, note: Note | null, missing?: undefined} |
 *   {missing: [first: bigint, last: bigint]}} Outcome
 */

const REMEMBERED = 256;
const UNSEEN_TICKS = 3; // what an honest adapter may have served before anybody watched
/** @type {(first: bigint, ...values: bigint[]) => bigint} */
const least = (first, ...values) => values.reduce((a, b) => (b < a ? b : a), first);
/** @type {(first: bigint, ...values: bigint[]) => bigint} */
const most = (first, ...values) => values.reduce((a, b) => (b > a ? b : a), first);

/**
 * A channel before its first receipt.
 * @template {Partial<Book> & {id: string}} F
 * @param {F} fields
 * @returns {Book & F}
 */
export const newBook = (fields) => ({
  leases: {}, last: null, signed: 0n, capacity: 0n, stopped: "", answered: [], endSent: false,
  state: "OPEN", ...fields,
});

/**
 * A lease whose terms were signed; *cap* is the most to approve, *aheadMs* what to sign ahead for at once.
 * @type {(terms: Bytes, adapterSignature: Bytes, cap: bigint, aheadMs?: number) => PaidLease}
 */
export const newLease = (terms, adapterSignature, cap, aheadMs = 0) => ({
  aheadMs, terms, adapterSignature, cap, since: null, approved: 0n, last: null, pausedAt: null, paused: 0, ended: null, served: 0n,
});

/** @type {(book: Pick<Book, "leases">) => bigint} */
const spent = (book) => Object.values(book.leases).reduce((sum, lease) => sum + lease.approved, 0n);

/** @type {(lease: PaidLease, now: number) => number} */
function elapsed(lease, now) {
  if (lease.since === null) return 0;
  const until = lease.ended === null ? now : Math.min(now, lease.ended);
  const lasting = lease.pausedAt === null ? 0 : Math.max(0, until - lease.pausedAt);
  return Math.max(0, Math.floor(until - lease.since - lease.paused - lasting));
}

/**
 * The most lovelace that own time justifies: one tick beyond it, for all pauses together too.
 * @type {(lease: PaidLease, terms: Terms, now: number) => bigint}
 */
function allowed(lease, terms, now) {
  return owed(unitMs(elapsed(lease, now) + terms.tick_ms, terms.units_milli), terms.rate_micro);
}

/**
 * What to do about `[body, signature]`: `{book, sign, note}` with the cumulative amount to sign or null,
 * or `{missing: [first, last]}`. Refused changes nothing; a guilty one carries `stop`.
 * @template {Book} B
 * @param {B} book
 * @param {Bytes} body
 * @param {Bytes} signature
 * @param {number} now
 * @returns {Promise<Outcome<B>>}
 */
export async function decide(book, body, signature, now) {
  if (book.stopped) throw new Refused("PAYER_STOPPED", `nothing is signed since ${book.stopped}`);
  const receipt = readReceipt(body);
  if (toHex(receipt.session_vk) !== book.id) throw new Refused("RECEIPT_FOREIGN", "for another channel");
  const lease = book.leases[receipt.lease];
  if (!lease) throw new Refused("RECEIPT_FOREIGN", `no terms were signed for ${receipt.lease}`);
  const terms = readTerms(lease.terms);
  if (!(await verifies(terms.adapter_vk, body, signature))) {
    throw new Refused("RECEIPT_FORGED", "not signed by the provider of the terms");
  }
  const last = book.last && readReceipt(book.last);
  if (last && receipt.seq <= last.seq) return again(book, receipt, last, lease, terms, now);
  const expected = BigInt(last?.seq ?? 0) + 1n;
  if (receipt.seq > expected) return { missing: [expected, BigInt(receipt.seq) - 1n] };
  follows(receipt, last, lease, terms);
  /** @type {PaidLease} */
  const next = { ...lease, last: body, since: lease.since ?? now, served: served(lease, receipt) };
  if (receipt.final && next.ended === null) next.ended = now;
  /** @type {Book["answered"]} */
  const answered = [...book.answered.slice(1 - REMEMBERED), [receipt.seq, receipt.hash]];
  return approve({ ...book, last: body, answered }, receipt, next, terms, now);
}

/**
 * The time of the lease's receipts up to *receipt*, less what they call lost.
 * @type {(lease: PaidLease, receipt: Receipt) => bigint}
 */
function served(lease, receipt) {
  const lost = receipt.lost.reduce((sum, [, ms]) => sum + BigInt(ms), 0n);
  return (lease.served ?? 0n) + BigInt(receipt.t1_ms) - BigInt(receipt.t0_ms) - lost;
}

/**
 * The most that can be served under the terms: what it takes to notice, to stop and to tell pauses apart included.
 * @type {(terms: Terms) => bigint}
 */
const longest = (terms) =>
  BigInt(terms.max_duration_ms) + BigInt(terms.grace_ms) + BigInt(terms.pause_limit_ms) + BigInt(UNSEEN_TICKS * terms.tick_ms);

/**
 * What is said to a receipt that was answered before: the same.
 * @template {Book} B
 * @param {B} book
 * @param {Receipt} receipt
 * @param {Receipt} last
 * @param {PaidLease} lease
 * @param {Terms} terms
 * @param {number} now
 */
function again(book, receipt, last, lease, terms, now) {
  const known = book.answered.find(([seq]) => seq === receipt.seq);
  if (known && !same(known[1], receipt.hash)) throw guilty("RECEIPT_FORKED", `two receipts are numbered ${receipt.seq}`);
  if (receipt.seq < last.seq) throw new Refused("RECEIPT_REPLAYED", `receipt ${receipt.seq} came again`);
  const outcome = approve(book, receipt, lease, terms, now);
  return { ...outcome, sign: outcome.book.signed };
}

/** @type {(receipt: Receipt, last: Receipt | null, lease: PaidLease, terms: Terms) => void} */
function follows(receipt, last, lease, terms) {
  const before = lease.last && readReceipt(lease.last);
  const wrong = brokenRule(receipt, last, before, terms.rate_micro);
  const beyond = outgrown(receipt, before, terms.units_milli);
  /** @type {[boolean, string | null][]} */
  const rules = [
    [wrong === null, wrong],
    [receipt.resource === terms.resource, "another resource than the terms'"],
    [same(receipt.device, terms.devices), "other devices than the terms'"],
    [BigInt(receipt.lease_owed) <= BigInt(terms.ceiling), "more than the terms' ceiling"],
    [served(lease, receipt) <= longest(terms), "longer than the terms let it run"],
    [beyond === null, beyond],
  ];
  const broken = rules.find(([holds]) => !holds);
  if (broken) throw guilty("RECEIPT_WRONG", broken[1] ?? "");
}

/** @type {(code: string, message: string) => Refused} */
const guilty = (code, message) => new Refused(code, message, true);

/**
 * @template {Book} B
 * @param {B} book
 * @param {Receipt} receipt
 * @param {PaidLease} lease
 * @param {Terms} terms
 * @param {number} now
 */
function approve(book, receipt, lease, terms, now) {
  const asked = BigInt(receipt.lease_owed);
  const room = book.capacity - (spent(book) - lease.approved);
  /** @type {[bigint, string][]} */
  const limits = [[asked, ""], [allowed(lease, terms, now), "CLOCK"], [lease.cap, "BUDGET"], [room, "CAPACITY"]];
  const [amount, code] = limits.reduce((a, b) => (b[0] < a[0] ? b : a));
  const approved = most(lease.approved, amount);
  const leases = { ...book.leases, [terms.lease]: { ...lease, approved } };
  const signed = most(book.signed, spent({ leases }));
  const note = code && approved < asked ? { code: `NOT_SIGNED_${code}`, kept: asked - approved } : null;
  return { book: { ...book, leases, signed }, sign: signed > book.signed ? signed : null, note };
}

/**
 * The book after a stage of a lease: it moves the own clock.
 * @template {Book} B
 * @param {B} book
 * @param {string} leaseId
 * @param {Stage} stage
 * @param {number} now
 */
export function staged(book, leaseId, stage, now) {
  const lease = book.leases[leaseId];
  if (!lease) return book;
  const next = { ...lease };
  if (stage === "STARTED" && lease.since === null) next.since = now;
  else if (stage === "PAUSED" && lease.since !== null && lease.pausedAt === null) next.pausedAt = now;
  else if (stage === "RESUMED" && lease.pausedAt !== null) {
    next.paused += Math.max(0, now - lease.pausedAt);
    next.pausedAt = null;
  } else if (stage === "FINISHED" && lease.ended === null) next.ended = now;
  else return book;
  return { ...book, leases: { ...book.leases, [leaseId]: next } };
}

/**
 * The book after signing ahead for *ms* of the lease, never above its cap: `{book, sign}`; Refused once it is stopped.
 * @template {Book} B
 * @param {B} book
 * @param {string} leaseId
 * @param {number} ms
 */
export function ahead(book, leaseId, ms) {
  if (book.stopped) throw new Refused("PAYER_STOPPED", `nothing is signed since ${book.stopped}`);
  const lease = book.leases[leaseId];
  if (!lease) throw new Refused("RECEIPT_FOREIGN", `no terms were signed for ${leaseId}`);
  const terms = readTerms(lease.terms);
  const more = owed(unitMs(ms, terms.units_milli), terms.rate_micro);
  const approved = least(lease.cap, lease.approved + more, book.capacity - (spent(book) - lease.approved));
  const leases = { ...book.leases, [leaseId]: { ...lease, aheadMs: 0, approved: most(approved, lease.approved) } };
  const signed = most(book.signed, spent({ leases }));
  return { book: { ...book, leases, signed }, sign: signed };
}

/**
 * The most that a lease may come to once its provider was lost: two ticks were on their way at most, and
 * what else the job's budget holds is for another provider.
 * @param {PaidLease} lease
 */
export function late(lease) {
  if (lease.last && readReceipt(lease.last).final) return lease.approved;
  const terms = readTerms(lease.terms);
  return least(lease.cap, lease.approved + owed(unitMs(2 * terms.tick_ms, terms.units_milli), terms.rate_micro));
}

/**
 * `[name, lease]` of the leases in the channel that *job* had beside *lease*.
 * @type {(book: Partial<Pick<Book, "leases">>, job: string, lease: string) => [string, PaidLease][]}
 */
export const earlier = (book, job, lease) =>
  Object.entries(book.leases ?? {}).filter(([name, one]) => name !== lease && readTerms(one.terms).job === job);

/**
 * The books that change when the job goes on at another provider with *lease*: its earlier leases together
 * get *total* and no more. The latest may still be billed for what it delivered, the others for nothing new;
 * what is approved stays.
 * @template {Book} B
 * @param {B[]} books
 * @param {string} job
 * @param {string} lease
 * @param {bigint} total
 */
export function capped(books, job, lease, total) {
  const found = books.flatMap((book) => earlier(book, job, lease).map(([name, one]) => ({ name, one, id: book.id })));
  found.sort((a, b) => (`${a.name},${a.id}` < `${b.name},${b.id}` ? -1 : 1));
  const rest = most(0n, found.reduce((left, { one }) => left - one.approved, total));
  const caps = new Map(found.map(({ name, one, id }) =>
    [`${id} ${name}`, least(one.cap, one.approved + (name === found.at(-1)?.name ? rest : 0n))]));
  const changed = books.filter(({ id }) => found.some((one) => one.id === id));
  return changed.map((book) => ({ ...book, leases: Object.fromEntries(Object.entries(book.leases).map(([name, one]) =>
    [name, { ...one, cap: caps.get(`${book.id} ${name}`) ?? one.cap }])) }));
}

/** @type {(lease: PaidLease) => boolean} */
const finished = (lease) => Boolean(lease.over || (lease.last && readReceipt(lease.last).final));

/**
 * Whether every lease of the channel has had its last receipt.
 * @type {(book: Pick<Book, "leases">) => boolean}
 */
export const over = (book) => Object.values(book.leases).every(finished);

/**
 * Whether a lease of the channel may still have receipts to answer.
 * @type {(book: Pick<Book, "leases">) => boolean}
 */
export const living = (book) => !over(book);

/**
 * Leases of the channel that are not over, with their names.
 * @type {(book: Pick<Book, "leases">) => [string, PaidLease][]}
 */
export const unfinished = (book) => Object.entries(book.leases).filter(([, lease]) => !finished(lease));

/**
 * What leases have used or may still use; the provider counts what it stated, signed or not, up to their ceilings.
 * @type {(book: Book, but: string) => bigint}
 */
function promised(book, but) {
  const agreed = Object.values(book.leases).reduce((sum, lease) => sum + BigInt(readTerms(lease.terms).ceiling), 0n);
  const stated = least(agreed, BigInt(book.last ? readReceipt(book.last).channel_owed : 0));
  const open = unfinished(book).filter(([name]) => name !== but);
  return most(spent(book), stated) + open.reduce((sum, [, lease]) => sum + lease.cap - lease.approved, 0n);
}

/**
 * What the channel has for a further lease.
 * @type {(book: Book) => bigint}
 */
export const left = (book) => most(0n, book.capacity - promised(book, ""));

/**
 * What a kept channel has to be topped up by before it can pay the lease *name* up to *ceiling*: never more than that.
 * @type {(book: Book, name: string, ceiling: bigint) => bigint}
 */
export const lacking = (book, name, ceiling) => least(ceiling, most(0n, promised(book, name) + ceiling - book.capacity));
