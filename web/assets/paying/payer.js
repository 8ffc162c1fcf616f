// The payer: answers receipts for every channel of its books, by the rules of money/payer.js. The browser's tab and
// the TypeScript client run this one; what each of them stands on is in `Means`.
//
// A channel that is *kept* is not ended with its last lease: the next job of the same consumer at the same
// provider is paid from it.

import { fromHex, messageOf } from "../crypto/bytes.js";
import { CborError } from "../crypto/cbor.js";
import { newKey, random, sign } from "../crypto/ed25519.js";
import { isOpen } from "../money/books.js";
import * as payer from "../money/payer.js";
import { endMessage, keepMessage, readReceipt, readTerms, Refused, voucherMessage } from "../money/records.js";
import { Conversation } from "../net/conversation.js";
import { Line } from "./line.js";

/**
 * @import { Bytes } from "../crypto/bytes.js"
 * @import { Paying, Vault } from "../money/books.js"
 * @import { Note, PaidLease } from "../money/payer.js"
 * @import { ChannelView, LeaseView, ReceiptRow } from "../net/answers.js"
 * @import { Told } from "../net/conversation.js"
 * @import { Socket } from "./line.js"
 * @import { Order, Said } from "./orders.js"
 */

/**
 * What a payer stands on.
 * @typedef {object} Means
 * @property {Vault} vault
 * @property {(message: Said) => void} say
 * @property {(path: string) => Promise<any>} read JSON of the market's API, of the type that its caller states; null where it is refused
 * @property {() => Socket} dial a new socket to the market's payers
 * @property {string} origin of the market, as it is dialled
 * @property {string} software
 * @property {() => number} now milliseconds, monotonic within this process's life
 */

/** @type {Set<unknown>} */
const DELIVERED = new Set(["COMPLETED", "CANCELLED"]); // ends of a lease that had begun

/** A lease that the channel has, and its job. */
function leaseIn(/** @type {Paying} */ book, /** @type {string} */ name) {
  const lease = book.leases[name];
  if (!lease) throw new Error(`the channel has no lease ${name}`);
  return { ...lease, job: readTerms(lease.terms).job };
}

export class Payer {
  /**
   * @param {Means} means
   * @param {Line} line
   */
  constructor(means, line) {
    this.means = means;
    this.line = line;
    /** @type {Map<string, Paying>} */
    this.books = new Map();
    /** @type {Promise<unknown>} */
    this.turn = Promise.resolve();
  }

  /**
   * A payer that has read its books, and does not pay before {@link pay}.
   * @param {Means} means
   * @param {number} magic
   */
  static async of(means, magic) {
    const talk = new Conversation(await newKey(), random(16), magic, means.origin, means.software);
    const made = new Payer(means, new Line(talk, means.dial, means.now));
    for (const book of await means.vault.open()) made.books.set(book.id, book);
    await made.bury().catch(() => {}); // a market that is away is asked when it is back
    made.count();
    return made;
  }

  /** Until its line is closed for good. */
  async pay() {
    await this.line.hold({
      inTurn: (work) => this.inTurn(work),
      opened: () => this.opened(),
      told: (message) => this.handle(message),
      broke: (error) => {
        if (error instanceof Refused) this.means.say({ what: "refused", code: error.code, message: error.message });
        else if (error) this.means.say({ what: "fault", message: messageOf(error) });
        this.means.say({ what: "link", up: false });
      },
    });
  }

  /**
   * One thing at a time: a book is read, decided, written and answered without another in between.
   * @param {() => Promise<unknown>} work
   */
  inTurn(work) {
    this.turn = this.turn.then(work).catch((error) => this.means.say({ what: "fault", message: messageOf(error) }));
    return this.turn;
  }

  async opened() {
    this.means.say({ what: "link", up: true });
    for (const book of this.books.values()) await this.subscribe(book);
    for (const book of this.books.values()) await (book.endSent ? this.sendEnd(book) : this.sendKeep(book));
  }

  /** @type {(book: Paying) => Promise<void>} */
  subscribe({ id, privateKey }) {
    return this.line.subscribe({ sessionVk: fromHex(id), privateKey });
  }

  /**
   * Do what *said* says, once nothing else is being done. Never throws: what went wrong is said.
   * @type {(said: Order) => Promise<unknown>}
   */
  order(said) {
    return this.inTurn(() => this.obey(said));
  }

  /** @type {(said: Order) => Promise<void>} */
  async obey(said) {
    if (said.do === "cap") {
      for (const book of payer.capped([...this.books.values()], said.job, said.lease, said.most)) await this.keep(book);
      return;
    }
    if (said.do === "watch" || said.do === "lease") await this.take(said.id);
    const book = this.books.get(said.id);
    if (!book) return;
    switch (said.do) {
      case "lease":
        return this.agree(book, said.lease, payer.newLease(said.terms, said.adapterSignature, said.cap, said.aheadMs));
      case "over":
        return this.giveUp(book, said.lease);
      case "finish":
        return this.end(book);
      case "twice":
        return this.twice(book);
      case "topped":
        return this.keep({ ...book, capacity: book.capacity + BigInt(said.amount) });
      case "ahead":
        return this.signAhead(book, said.lease, said.ms);
      default: // watch: it is taken
    }
  }

  /** @type {(book: Paying, lease: string, ms: number) => Promise<void>} */
  async signAhead(held, lease, ms) {
    const { book, sign: signed } = payer.ahead(held, lease, ms);
    await this.keep(book);
    await this.voucher(book, lease, signed);
    this.means.say({ what: "ahead", id: book.id, lease, signed });
  }

  count() {
    this.means.say({ what: "paying", channels: [...this.books.values()].filter(payer.living).length });
  }

  /**
   * Add a lease to an open channel; written down before the market hears that its terms are signed.
   * @type {(book: Paying, name: string, lease: PaidLease) => Promise<void>}
   */
  async agree(book, name, lease) {
    if (!book.leases[name]) await this.keep({ ...book, leases: { ...book.leases, [name]: lease } });
    this.count();
  }

  /**
   * A lease that will have no receipt: its quote lapsed, or its provider was lost.
   * @type {(book: Paying, name: string, lost?: boolean) => Promise<void>}
   */
  async giveUp(book, name, lost = false) {
    const lease = book.leases[name];
    if (!lease) return;
    const next = { ...book, leases: { ...book.leases, [name]: { ...lease, over: true, cap: lost ? payer.late(lease) : lease.cap } } };
    await this.keep(next);
    if (payer.over(next)) await this.idle(next, lost);
    this.count();
  }

  /** What ended while no page was open: the market's word is enough to stop signing. */
  async bury() {
    if (!this.books.size) return;
    /** @type {{items: ChannelView[]} | null} */
    const channels = await this.means.read("/v1/channels");
    for (const { session_vk: id, state } of channels?.items ?? []) {
      const book = this.books.get(id);
      if (state === "ENDED" && book) await this.ended(book);
    }
    for (const { id, leases } of [...this.books.values()]) {
      for (const [name] of payer.unfinished({ leases })) {
        /** @type {LeaseView | null} */
        const lease = await this.means.read(`/v1/leases/${name}`);
        const book = this.books.get(id);
        if (book && lease?.state === "ENDED") await this.giveUp(book, name, lease.reason === "PROVIDER_LOST");
      }
    }
  }

  /** @type {(book: Paying) => Promise<void>} */
  async ended(book) {
    await this.means.vault.keep({ ...book, state: "ENDED" });
    this.books.delete(book.id);
  }

  /**
   * The key has a second output: nothing more is signed for either, and the end of this one is asked for.
   * @type {(held: Paying) => Promise<void>}
   */
  async twice(held) {
    const book = { ...held, stopped: "CHANNEL_TWICE" };
    await this.keep(book);
    for (const [lease] of payer.unfinished(book)) this.line.send("StopAsked", { lease, reason: "CHANNEL_TWICE" });
    await this.end(book);
  }

  /** @type {(id: string) => Promise<void>} */
  async take(id) {
    if (this.books.has(id)) return;
    const book = await this.means.vault.load(id);
    if (!isOpen(book)) return;
    this.books.set(id, book);
    if (this.line.talk.open) await this.subscribe(book);
    this.count();
  }

  /** @type {(book: Paying) => Promise<void>} */
  async keep(book) {
    await this.means.vault.keep(book);
    this.books.set(book.id, book);
  }

  /** @type {(lease: string) => Paying | undefined} */
  holder(lease) {
    return [...this.books.values()].find((book) => lease in book.leases);
  }

  /** @type {(message: Told) => Promise<void>} */
  async handle({ kind, body }) {
    if (kind === "ReceiptSent") {
      const book = this.holder(body.lease);
      if (book) await this.receipt(book, ...body.receipt, true);
    } else if (kind === "LeaseProgress") {
      const book = this.holder(body.lease);
      if (book) await this.progress(book, body);
    } else if (kind === "Rejected") {
      this.means.say({ what: "refused", code: body.code, message: body.message });
    }
  }

  /** @type {(book: Paying, body: Bytes, signature: Bytes, gapAllowed: boolean) => Promise<void>} */
  async receipt(book, body, signature, gapAllowed) {
    const latest = () => this.books.get(book.id) ?? book;
    try {
      let outcome = await payer.decide(book, body, signature, this.means.now());
      if (outcome.missing && gapAllowed) {
        await this.fill(book, outcome.missing, readReceipt(body).lease);
        outcome = await payer.decide(latest(), body, signature, this.means.now());
      }
      if (outcome.missing) throw new Refused("RECEIPT_REORDERED", `receipt ${outcome.missing[0]} is missing`);
      await this.reply(outcome.book, outcome.note, body);
    } catch (error) {
      if (error instanceof CborError) return this.means.say({ what: "note", id: book.id, code: "MALFORMED", message: error.message });
      if (!(error instanceof Refused)) throw error; // not decided, or not written: nothing was sent
      if (error.code === "RECEIPT_REPLAYED") return;
      if (error.stop) {
        await this.keep({ ...latest(), stopped: error.code, evidence: { body, signature } });
        this.line.send("StopAsked", { lease: readReceipt(body).lease, reason: "PROVIDER_FAULT" });
      }
      this.means.say({ what: "note", id: book.id, code: error.code, message: error.message });
    }
  }

  /** @type {(book: Paying, note: Note | null, body: Bytes) => Promise<void>} */
  async reply(book, note, body) {
    const given = readReceipt(body);
    await this.keep(book);
    // A tick in which nothing was delivered is answered too: the market then asks no more.
    await this.voucher(book, given.lease, book.signed);
    const { job, approved, aheadMs } = leaseIn(book, given.lease);
    this.means.say({ what: "tick", id: book.id, lease: given.lease, job, seq: given.seq, unitMs: given.unit_ms_total, approved, signed: book.signed });
    if (note) this.means.say({ what: "note", id: book.id, code: note.code, kept: note.kept });
    if (aheadMs && !given.final) await this.signAhead(book, given.lease, aheadMs); // it delivers: now the page may be closed
    if (payer.over(book)) await this.idle(book);
    if (given.final) this.count();
  }

  /** @type {(book: Paying, lease: string, cumulative: bigint) => Promise<void>} */
  async voucher({ id, privateKey }, lease, cumulative) {
    const signature = await sign(privateKey, voucherMessage(cumulative));
    this.line.send("VoucherSent", { lease, voucher: [fromHex(id), cumulative, signature] });
  }

  /**
   * Read what was missed while no page was open, and handle it in order.
   * @type {(book: Paying, gap: [first: bigint, last: bigint], lease: string) => Promise<void>}
   */
  async fill(book, [first, last], lease) {
    /** @type {Map<number, ReceiptRow>} */
    const found = new Map();
    // A kept channel has receipts of several jobs in one chain: the lease's own job is asked first.
    for (const job of new Set([lease, ...Object.keys(book.leases)].map((name) => leaseIn(book, name).job))) {
      for await (const row of this.receiptsOf(job)) if (row.seq >= first && row.seq <= last && row.lease in book.leases) found.set(row.seq, row);
      if (BigInt(found.size) === last - first + 1n) break;
    }
    // What there is, in order: how wide the gap is was said by a receipt, and may be anything.
    for (const row of [...found.values()].sort((a, b) => a.seq - b.seq)) {
      await this.receipt(this.books.get(book.id) ?? book, fromHex(row.body), fromHex(row.signature), false);
    }
  }

  /**
   * As the market kept them; of a job that was tried again, those of each of its channels.
   * @param {string} job
   * @returns {AsyncGenerator<ReceiptRow>}
   */
  async* receiptsOf(job) {
    for (let cursor = ""; ; ) {
      const query = new URLSearchParams({ limit: "1000", ...(cursor && { cursor }) });
      /** @type {{items: ReceiptRow[], next: string | null} | null} */
      const page = await this.means.read(`/v1/jobs/${job}/receipts?${query}`);
      yield* page?.items ?? [];
      if (!page?.next) return;
      cursor = page.next;
    }
  }

  /**
   * @param {Paying} book
   * @param {Extract<Told, {kind: "LeaseProgress"}>["body"]} told
   */
  async progress(book, { lease, stage, detail }) {
    let next = payer.staged(book, lease, stage, this.means.now());
    const { job, ...one } = leaseIn(next, lease);
    // A start that failed has no receipts to come; what was delivered has its final receipt.
    const never = stage === "FINISHED" && one.last === null && !DELIVERED.has(detail?.reason);
    if (never) next = { ...next, leases: { ...next.leases, [lease]: { ...one, over: true } } };
    if (next !== book) await this.keep(next);
    this.means.say({ what: "stage", id: book.id, lease, job, stage });
    if (stage === "STARTED") await this.sendKeep(next); // whatever becomes of this page: the channel ends by itself
    if (never && payer.over(next)) await this.idle(next);
    if (stage === "SETTLED") await this.settled(this.books.get(book.id) ?? next, detail?.tx);
    if (never) this.count();
  }

  /**
   * A lease of a kept channel is settled when its voucher is in; the channel is once it ended on chain, in *tx*.
   * @type {(book: Paying, tx: string | undefined) => Promise<void>}
   */
  async settled(book, tx) {
    if (book.endSent || tx) await this.ended(book);
    this.count();
  }

  /**
   * No lease of it runs: it ends, or stays open for a next job.
   * @type {(book: Paying, lost?: boolean) => Promise<void>}
   */
  idle(book, lost = false) {
    return lost || !book.keep ? this.end(book) : this.sendKeep(book);
  }

  /** @type {(held: Paying) => Promise<void>} */
  async end(held) {
    const book = { ...held, endSent: true };
    await this.keep(book);
    await this.sendEnd(book);
    this.means.say({ what: "end", id: book.id, signed: book.signed });
    this.count();
  }

  /** @type {(book: Paying) => Promise<void>} */
  async sendKeep({ id, privateKey, keepMs, endSent }) {
    if (!keepMs || endSent) return;
    const signature = await sign(privateKey, keepMessage(fromHex(id), keepMs));
    this.line.send("KeepSent", { keep: [fromHex(id), keepMs, signature] });
  }

  /** @type {(book: Paying) => Promise<void>} */
  async sendEnd(book) {
    const signature = await sign(book.privateKey, endMessage(fromHex(book.id), book.signed));
    this.line.send("EndSent", { end: [fromHex(book.id), book.signed, signature] });
  }
}
