// The payer of this browser: answers receipts for every channel in the vault. One tab pays at a time
// (a Web Lock); the others take over when it closes.
//
// What it is told and what it says is in orders.js; its own page starts it with {do: "start", magic, token}.
//
// A channel that is *kept* is not ended with its last lease: the next job of this browser at the same
// provider is paid from it.

import { fromHex, messageOf } from "../crypto/bytes.js";
import { pause } from "../net/api.js";
import { Conversation } from "../net/conversation.js";
import { newKey, random, sign } from "../crypto/ed25519.js";
import * as payer from "../money/payer.js";
import { endMessage, keepMessage, readReceipt, readTerms, Refused, voucherMessage } from "../money/records.js";
import * as vault from "../money/vault.js";

/**
 * @import { Bytes } from "../crypto/bytes.js"
 * @import { Sent, Told } from "../net/conversation.js"
 * @import { ChannelView, LeaseView, ReceiptRow } from "../net/answers.js"
 * @import { Named, Said } from "./orders.js"
 * @import { Note, PaidLease } from "../money/payer.js"
 * @import { Paying } from "../money/vault.js"
 */

const PAUSES = [200, 500, 1000, 2000];
const PAUSE_MOST = 5000;
/** @type {Set<unknown>} */
const DELIVERED = new Set(["COMPLETED", "CANCELLED"]); // ends of a lease that had begun
const now = () => performance.timeOrigin + performance.now(); // monotonic within this page's life
const told = new BroadcastChannel("tally-payer");

/** @type {Conversation} */
let talk;
/** @type {WebSocket} */
let socket;
let credentials = "";
let ready = false; // this tab pays, and has read its books
/** @type {Map<string, Paying>} */
const books = new Map();
/** @type {Promise<unknown>} */
let turn = Promise.resolve();

const say = (/** @type {Said} */ message) => told.postMessage(message);
/**
 * One thing at a time: a book is read, decided, written and answered without another in between.
 * @param {() => Promise<unknown>} work
 */
function inTurn(work) {
  turn = turn.then(work).catch((error) => say({ what: "fault", message: messageOf(error) }));
  return turn;
}

self.onmessage = (/** @type {MessageEvent<{do: "start", magic: number, token: string}>} */ { data }) => {
  if (data.do === "start") {
    credentials = data.token;
    navigator.locks.request("tally-payer", () => pay(data.magic)).catch((error) => say({ what: "fault", message: String(error) }));
  }
};
// Another tab of this browser may be the one that pays: orders go to whoever does.
const orders = new BroadcastChannel("tally-orders");
const taken = new Set();
orders.onmessage = (/** @type {MessageEvent<Named>} */ { data }) => {
  if (!ready || taken.has(data.name)) return; // it is said again
  taken.add(data.name);
  inTurn(() => order(data)).then(() => say({ what: "took", name: data.name }));
};

/** @type {(said: Named) => Promise<void>} */
async function order(said) {
  if (said.token) credentials = said.token;
  if (said.do === "cap") {
    for (const book of payer.capped([...books.values()], said.job, said.lease, said.most)) await keep(book);
    return;
  }
  if (said.do === "watch" || said.do === "lease") await take(said.id);
  const book = books.get(said.id);
  if (!book) return;
  switch (said.do) {
    case "lease":
      return agree(book, said.lease, payer.newLease(said.terms, said.adapterSignature, said.cap, said.aheadMs));
    case "over":
      return giveUp(book, said.lease);
    case "finish":
      return end(book);
    case "twice":
      return twice(book);
    case "topped":
      return keep({ ...book, capacity: book.capacity + BigInt(said.amount) });
    case "ahead":
      return signAhead(book, said.lease, said.ms);
    default: // watch: it is taken
  }
}

/** @type {(book: Paying, lease: string, ms: number) => Promise<void>} */
async function signAhead(held, lease, ms) {
  const { book, sign: signed } = payer.ahead(held, lease, ms);
  await keep(book);
  await voucher(book, lease, signed);
  say({ what: "ahead", id: book.id, lease, signed });
}

/** @type {(magic: number) => Promise<never>} */
async function pay(magic) {
  talk = new Conversation(await newKey(), random(16), magic, location.origin);
  for (const book of await vault.open()) books.set(book.id, book);
  await bury().catch(() => {}); // a market that is away is asked when it is back
  ready = true;
  count();
  for (let attempt = 0; ; attempt++) {
    const before = now();
    await connection().catch((error) => {
      if (error instanceof Refused) say({ what: "refused", code: error.code, message: error.message });
    });
    say({ what: "link", up: false });
    if (now() - before > 10_000) attempt = 0;
    await pause(PAUSES[attempt] ?? PAUSE_MOST);
  }
}

const count = () => say({ what: "paying", channels: [...books.values()].filter(payer.living).length });

/**
 * Add a lease to an open channel; written down before the market hears that its terms are signed.
 * @type {(book: Paying, name: string, lease: PaidLease) => Promise<void>}
 */
async function agree(book, name, lease) {
  if (!book.leases[name]) await keep({ ...book, leases: { ...book.leases, [name]: lease } });
  count();
}

/**
 * A lease that will have no receipt: its quote lapsed, or its provider was lost.
 * @type {(book: Paying, name: string, lost?: boolean) => Promise<void>}
 */
async function giveUp(book, name, lost = false) {
  const lease = book.leases[name];
  if (!lease) return;
  const next = { ...book, leases: { ...book.leases, [name]: { ...lease, over: true, cap: lost ? payer.late(lease) : lease.cap } } };
  await keep(next);
  if (payer.over(next)) await idle(next, lost);
  count();
}

/** @type {(path: string) => Promise<any>} */ // of the type that its caller states
const read = async (path) => {
  const answer = await fetch(path, { headers: { Authorization: `Bearer ${credentials}` } });
  return answer.ok ? answer.json() : null;
};

/** What ended while no page was open: the market's word is enough to stop signing. */
async function bury() {
  if (!books.size || !credentials) return;
  /** @type {{items: ChannelView[]} | null} */
  const channels = await read("/v1/channels");
  for (const { session_vk: id, state } of channels?.items ?? []) {
    const book = books.get(id);
    if (state === "ENDED" && book) await ended(book);
  }
  for (const { id, leases } of [...books.values()]) {
    for (const [name] of payer.unfinished({ leases })) {
      /** @type {LeaseView | null} */
      const lease = await read(`/v1/leases/${name}`);
      const book = books.get(id);
      if (book && lease?.state === "ENDED") await giveUp(book, name, lease.reason === "PROVIDER_LOST");
    }
  }
}

/** @type {(book: Paying) => Promise<void>} */
async function ended(book) {
  await vault.keep({ ...book, state: "ENDED" });
  books.delete(book.id);
}

/** @type {() => Promise<void>} */
function connection() {
  return new Promise((done, failed) => {
    const scheme = self.location.protocol === "https:" ? "wss" : "ws";
    socket = new WebSocket(`${scheme}://${self.location.host}/v1/payer`);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => socket.send(talk.hello());
    socket.onmessage = ({ data }) => inTurn(() => step(new Uint8Array(data)).catch((error) => { socket.close(); failed(error); }));
    socket.onclose = () => { talk.open = false; done(); };
    socket.onerror = () => socket.close();
  });
}

/** @type {(bytes: Bytes) => Promise<void>} */
async function step(bytes) {
  const before = talk.received;
  const { answers, message, opened } = await talk.receive(bytes);
  answers.forEach((answer) => socket.send(answer));
  if (opened) {
    say({ what: "link", up: true });
    for (const book of books.values()) await subscribe(book);
    for (const book of books.values()) await (book.endSent ? sendEnd(book) : sendKeep(book));
  }
  if (message) await handle(message);
  if (talk.received !== before) socket.send(talk.acknowledgement());
}

/**
 * The key has a second output: nothing more is signed for either, and the end of this one is asked for.
 * @type {(held: Paying) => Promise<void>}
 */
async function twice(held) {
  const book = { ...held, stopped: "CHANNEL_TWICE" };
  await keep(book);
  for (const [lease] of payer.unfinished(book)) send("StopAsked", { lease, reason: "CHANNEL_TWICE" });
  await end(book);
}

/**
 * @template {keyof Sent} K
 * @param {K} kind
 * @param {Sent[K]} body
 */
function send(kind, body) {
  const bytes = talk.wrap(kind, body);
  if (talk.open && socket.readyState === WebSocket.OPEN) socket.send(bytes);
}

/** @type {(book: Paying) => Promise<void>} */
async function subscribe(book) {
  const bytes = await talk.subscribe({ sessionVk: fromHex(book.id), privateKey: book.privateKey });
  if (bytes && talk.open && socket.readyState === WebSocket.OPEN) socket.send(bytes);
}

/** @type {(id: string) => Promise<void>} */
async function take(id) {
  if (books.has(id)) return;
  const book = await vault.load(id);
  if (!vault.isOpen(book)) return;
  books.set(id, book);
  if (talk.open) await subscribe(book);
  count();
}

/** @type {(book: Paying) => Promise<void>} */
async function keep(book) {
  await vault.keep(book);
  books.set(book.id, book);
}

/** @type {(lease: string) => Paying | undefined} */
const holder = (lease) => [...books.values()].find((book) => lease in book.leases);

/** @type {(message: Told) => Promise<void>} */
async function handle({ kind, body }) {
  if (kind === "ReceiptSent") {
    const book = holder(body.lease);
    if (book) await receipt(book, ...body.receipt, true);
  } else if (kind === "LeaseProgress") {
    const book = holder(body.lease);
    if (book) await progress(book, body);
  } else if (kind === "Rejected") {
    say({ what: "refused", code: body.code, message: body.message });
  }
}

/** @type {(book: Paying, body: Bytes, signature: Bytes, gapAllowed: boolean) => Promise<void>} */
async function receipt(book, body, signature, gapAllowed) {
  const latest = () => books.get(book.id) ?? book;
  try {
    let outcome = await payer.decide(book, body, signature, now());
    if (outcome.missing && gapAllowed) {
      await fill(book, outcome.missing, readReceipt(body).lease);
      outcome = await payer.decide(latest(), body, signature, now());
    }
    if (outcome.missing) throw new Refused("RECEIPT_REORDERED", `receipt ${outcome.missing[0]} is missing`);
    await reply(outcome.book, outcome.note, body);
  } catch (error) {
    if (!(error instanceof Refused) || error.code === "RECEIPT_REPLAYED") return;
    if (error.stop) {
      await keep({ ...latest(), stopped: error.code, evidence: { body, signature } });
      send("StopAsked", { lease: readReceipt(body).lease, reason: "PROVIDER_FAULT" });
    }
    say({ what: "note", id: book.id, code: error.code, message: error.message });
  }
}

/** @type {(book: Paying, note: Note | null, body: Bytes) => Promise<void>} */
async function reply(book, note, body) {
  const given = readReceipt(body);
  await keep(book);
  // A tick in which nothing was delivered is answered too: the market then asks no more.
  await voucher(book, given.lease, book.signed);
  const { job, approved, aheadMs } = leaseIn(book, given.lease);
  say({ what: "tick", id: book.id, lease: given.lease, job, seq: given.seq, unitMs: given.unit_ms_total, approved, signed: book.signed });
  if (note) say({ what: "note", id: book.id, code: note.code, kept: note.kept });
  if (aheadMs && !given.final) await signAhead(book, given.lease, aheadMs); // it delivers: now the page may be closed
  if (payer.over(book)) await idle(book);
  if (given.final) count();
}

/** @type {(book: Paying, lease: string, cumulative: bigint) => Promise<void>} */
async function voucher({ id, privateKey }, lease, cumulative) {
  const signature = await sign(privateKey, voucherMessage(cumulative));
  send("VoucherSent", { lease, voucher: [fromHex(id), cumulative, signature] });
}

/** A lease that the channel has, and its job. */
function leaseIn(/** @type {Paying} */ book, /** @type {string} */ name) {
  const lease = book.leases[name];
  if (!lease) throw new Error(`the channel has no lease ${name}`);
  return { ...lease, job: readTerms(lease.terms).job };
}

/**
 * Read what was missed while no page was open, and handle it in order.
 * @type {(book: Paying, gap: [first: bigint, last: bigint], lease: string) => Promise<void>}
 */
async function fill(book, [first, last], lease) {
  /** @type {Map<number, ReceiptRow>} */
  const found = new Map();
  // A kept channel has receipts of several jobs in one chain: the lease's own job is asked first.
  for (const job of new Set([lease, ...Object.keys(book.leases)].map((name) => leaseIn(book, name).job))) {
    for await (const row of receiptsOf(job)) if (row.seq >= first && row.seq <= last && row.lease in book.leases) found.set(row.seq, row);
    if (BigInt(found.size) === last - first + 1n) break;
  }
  // What there is, in order: how wide the gap is was said by a receipt, and may be anything.
  for (const row of [...found.values()].sort((a, b) => a.seq - b.seq)) {
    await receipt(books.get(book.id) ?? book, fromHex(row.body), fromHex(row.signature), false);
  }
}

/**
 * As the market kept them; of a job that was tried again, those of each of its channels.
 * @param {string} job
 * @returns {AsyncGenerator<ReceiptRow>}
 */
async function* receiptsOf(job) {
  for (let cursor = ""; ; ) {
    const query = new URLSearchParams({ limit: "1000", ...(cursor && { cursor }) });
    /** @type {{items: ReceiptRow[], next: string | null} | null} */
    const page = await read(`/v1/jobs/${job}/receipts?${query}`);
    yield* page?.items ?? [];
    if (!page?.next) return;
    cursor = page.next;
  }
}

/**
 * @param {Paying} book
 * @param {Extract<Told, {kind: "LeaseProgress"}>["body"]} told
 */
async function progress(book, { lease, stage, detail }) {
  let next = payer.staged(book, lease, stage, now());
  const { job, ...one } = leaseIn(next, lease);
  // A start that failed has no receipts to come; what was delivered has its final receipt.
  const never = stage === "FINISHED" && one.last === null && !DELIVERED.has(detail?.reason);
  if (never) next = { ...next, leases: { ...next.leases, [lease]: { ...one, over: true } } };
  if (next !== book) await keep(next);
  say({ what: "stage", id: book.id, lease, job, stage });
  if (stage === "STARTED") await sendKeep(next); // whatever becomes of this page: the channel ends by itself
  if (never && payer.over(next)) await idle(next);
  if (stage === "SETTLED") await settled(books.get(book.id) ?? next, detail?.tx);
  if (never) count();
}

/**
 * A lease of a kept channel is settled when its voucher is in; the channel is once it ended on chain, in *tx*.
 * @type {(book: Paying, tx: string | undefined) => Promise<void>}
 */
async function settled(book, tx) {
  if (book.endSent || tx) await ended(book);
  count();
}

/**
 * No lease of it runs: it ends, or stays open for a next job.
 * @type {(book: Paying, lost?: boolean) => Promise<void>}
 */
const idle = (book, lost = false) => (lost || !book.keep ? end(book) : sendKeep(book));

/** @type {(held: Paying) => Promise<void>} */
async function end(held) {
  const book = { ...held, endSent: true };
  await keep(book);
  await sendEnd(book);
  say({ what: "end", id: book.id, signed: book.signed });
  count();
}

/** @type {(book: Paying) => Promise<void>} */
async function sendKeep({ id, privateKey, keepMs, endSent }) {
  if (!keepMs || endSent) return;
  const signature = await sign(privateKey, keepMessage(fromHex(id), keepMs));
  send("KeepSent", { keep: [fromHex(id), keepMs, signature] });
}

/** @type {(book: Paying) => Promise<void>} */
async function sendEnd(book) {
  const signature = await sign(book.privateKey, endMessage(fromHex(book.id), book.signed));
  send("EndSent", { end: [fromHex(book.id), book.signed, signature] });
}
