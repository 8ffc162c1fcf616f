// The payer of this browser: answers receipts for every channel in the vault. One tab pays at a time
// (a Web Lock); the others take over when it closes.
//
// In:  {do: "start", magic, token}, {do: "watch", id}, {do: "lease", id, lease, …}, {do: "over", id, lease},
//      {do: "cap", job, lease, most}, {do: "topped", id, amount}, {do: "ahead", id, lease, ms}, {do: "finish", id},
//      {do: "twice", id}
// Out: {what: "paying", …}, {what: "took", name}, {what: "tick", …}, {what: "note", …}, {what: "stage", …},
//      {what: "link", up}
//
// A channel that is *kept* is not ended with its last lease: the next job of this browser at the same
// provider is paid from it.

import { fromHex } from "./bytes.js";
import { Conversation } from "./conversation.js";
import { newKey, random, sign } from "./crypto.js";
import * as payer from "./payer.js";
import { endMessage, readReceipt, readTerms, Refused, voucherMessage } from "./records.js";
import * as vault from "./vault.js";

const PAUSES = [200, 500, 1000, 2000, 5000];
const now = () => performance.timeOrigin + performance.now(); // monotonic within this page's life
const told = new BroadcastChannel("tally-payer");

let talk;
let socket;
let credentials = "";
let ready = false; // this tab pays, and has read its books
const books = new Map();
let turn = Promise.resolve();

const say = (message) => told.postMessage(message);
/** One thing at a time: a book is read, decided, written and answered without another in between. */
const inTurn = (work) => (turn = turn.then(work).catch((error) => say({ what: "fault", message: String(error.message || error) })));

self.onmessage = ({ data }) => {
  if (data.do === "start") {
    credentials = data.token;
    navigator.locks.request("tally-payer", () => pay(data.magic)).catch((error) => say({ what: "fault", message: String(error) }));
  }
};
// Another tab of this browser may be the one that pays: orders go to whoever does.
const orders = new BroadcastChannel("tally-orders");
const taken = new Set();
orders.onmessage = ({ data }) => {
  if (!ready || taken.has(data.name)) return; // it is said again
  taken.add(data.name);
  inTurn(() => order(data)).then(() => say({ what: "took", name: data.name }));
};

async function order({ do: what, id, lease, ms, amount, token, terms, adapterSignature, cap, job, most }) {
  if (token) credentials = token;
  if (what === "cap") for (const book of payer.capped([...books.values()], job, lease, most)) await keep(book);
  if (what === "watch" || what === "lease") await take(id);
  if (!books.has(id)) return;
  if (what === "lease") await agree(books.get(id), lease, payer.newLease(terms, adapterSignature, cap));
  if (what === "over") await giveUp(id, lease);
  if (what === "finish") await end(id);
  if (what === "twice") await twice(id);
  if (what === "topped") await keep({ ...books.get(id), capacity: books.get(id).capacity + BigInt(amount) });
  if (what === "ahead") {
    const { book, sign: signed } = payer.ahead(books.get(id), lease, ms);
    await keep(book);
    await voucher(id, lease, signed);
    say({ what: "ahead", id, lease, signed });
  }
}

async function pay(magic) {
  talk = new Conversation(await newKey(), random(16), magic, location.origin);
  for (const book of await vault.open()) books.set(book.id, book);
  await bury().catch(() => {}); // a market that is away is asked when it is back
  ready = true;
  count();
  for (let attempt = 0; ; attempt++) {
    const before = now();
    await connection().catch((error) => error instanceof Refused && say({ what: "refused", code: error.code, message: error.message }));
    say({ what: "link", up: false });
    if (now() - before > 10_000) attempt = 0;
    await new Promise((done) => setTimeout(done, PAUSES[Math.min(attempt, PAUSES.length - 1)]));
  }
}

const count = () => say({ what: "paying", channels: [...books.values()].filter(payer.living).length });

/** Add a lease to an open channel; written down before the market hears that its terms are signed. */
async function agree(book, name, lease) {
  if (!book.leases[name]) await keep({ ...book, leases: { ...book.leases, [name]: lease } });
  count();
}

/** A lease that will have no receipt: its quote lapsed, or its provider was lost. */
async function giveUp(id, name, lost = false) {
  const book = books.get(id);
  const lease = book.leases[name];
  if (!lease) return;
  await keep({ ...book, leases: { ...book.leases, [name]: { ...lease, over: true, cap: lost ? payer.late(lease) : lease.cap } } });
  if (payer.over(books.get(id)) && (lost || !book.keep)) await end(id);
  count();
}

const read = async (path) => {
  const answer = await fetch(path, { headers: { Authorization: `Bearer ${credentials}` } });
  return answer.ok ? answer.json() : null;
};

/** What ended while no page was open: the market's word is enough to stop signing. */
async function bury() {
  if (!books.size || !credentials) return;
  for (const { session_vk: id, state } of (await read("/v1/channels"))?.items ?? []) {
    if (state === "ENDED" && books.has(id)) await ended(id);
  }
  for (const book of [...books.values()]) {
    for (const name of payer.unfinished(book)) {
      const lease = await read(`/v1/leases/${name}`);
      if (lease?.state === "ENDED") await giveUp(book.id, name, lease.reason === "PROVIDER_LOST");
    }
  }
}

async function ended(id) {
  await vault.keep({ ...books.get(id), state: "ENDED" });
  books.delete(id);
}

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

async function step(bytes) {
  const before = talk.received;
  const { answers, message, opened } = await talk.receive(bytes);
  answers.forEach((answer) => socket.send(answer));
  if (opened) {
    say({ what: "link", up: true });
    for (const book of books.values()) await subscribe(book);
    for (const book of books.values()) if (book.endSent) await sendEnd(book);
  }
  if (message) await handle(message);
  if (talk.received !== before) socket.send(talk.acknowledgement());
}

/** The key has a second output: nothing more is signed for either, and the end of this one is asked for. */
async function twice(id) {
  const book = { ...books.get(id), stopped: "CHANNEL_TWICE" };
  await keep(book);
  for (const lease of payer.unfinished(book)) send("StopAsked", { lease, reason: "CHANNEL_TWICE" });
  await end(id);
}

function send(kind, body) {
  const bytes = talk.wrap(kind, body);
  if (talk.open && socket.readyState === WebSocket.OPEN) socket.send(bytes);
}

async function subscribe(book) {
  const bytes = await talk.subscribe({ sessionVk: fromHex(book.id), privateKey: book.privateKey });
  if (bytes && talk.open && socket.readyState === WebSocket.OPEN) socket.send(bytes);
}

async function take(id) {
  if (books.has(id)) return;
  const book = await vault.load(id);
  if (!book || book.state !== "OPEN") return;
  books.set(id, book);
  if (talk.open) await subscribe(book);
  count();
}

async function keep(book) {
  await vault.keep(book);
  books.set(book.id, book);
}

const holder = (lease) => [...books.values()].find((book) => lease in book.leases);

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

async function receipt(book, body, signature, gapAllowed) {
  try {
    let outcome = await payer.decide(book, body, signature, now());
    if (outcome.missing && gapAllowed) {
      await fill(book, outcome.missing, readReceipt(body).lease);
      book = books.get(book.id);
      outcome = await payer.decide(book, body, signature, now());
    }
    if (outcome.missing) throw new Refused("RECEIPT_REORDERED", `receipt ${outcome.missing[0]} is missing`);
    await answer(outcome, body);
  } catch (error) {
    if (!(error instanceof Refused) || error.code === "RECEIPT_REPLAYED") return;
    if (error.stop) {
      const guilty = { ...books.get(book.id), stopped: error.code, evidence: { body, signature } };
      await keep(guilty);
      send("StopAsked", { lease: readReceipt(body).lease, reason: "PROVIDER_FAULT" });
    }
    say({ what: "note", id: book.id, code: error.code, message: error.message });
  }
}

async function answer({ book, note }, body) {
  const read = readReceipt(body);
  await keep(book);
  // A tick in which nothing was delivered is answered too: the market then asks no more.
  await voucher(book.id, read.lease, book.signed);
  const lease = book.leases[read.lease];
  say({ what: "tick", id: book.id, lease: read.lease, job: readTerms(lease.terms).job, seq: read.seq, unitMs: read.unit_ms_total, approved: lease.approved, signed: book.signed });
  if (note) say({ what: "note", id: book.id, code: note.code, kept: note.kept });
  if (payer.over(book) && !book.keep) await end(book.id);
  if (read.final) count();
}

async function voucher(id, lease, cumulative) {
  const { privateKey } = books.get(id);
  const signature = await sign(privateKey, voucherMessage(cumulative));
  send("VoucherSent", { lease, voucher: [fromHex(id), cumulative, signature] });
}

/** Read what was missed while no page was open, and handle it in order. */
async function fill(book, [first, last], lease) {
  const jobOf = (name) => readTerms(book.leases[name].terms).job;
  const found = new Map();
  // A kept channel has receipts of several jobs in one chain: the lease's own job is asked first.
  for (const job of new Set([jobOf(lease), ...Object.keys(book.leases).map(jobOf)])) {
    for (let cursor = ""; cursor !== null; ) {
      const query = new URLSearchParams({ limit: "1000", ...(cursor && { cursor }) });
      const page = await read(`/v1/jobs/${job}/receipts?${query}`);
      for (const row of page?.items ?? []) if (row.seq >= first && row.seq <= last && isOf(row, book)) found.set(row.seq, row);
      cursor = page?.next || null;
    }
    if (found.size === last - first + 1) break;
  }
  for (let seq = first; seq <= last; seq++) {
    const row = found.get(seq);
    if (row) await receipt(books.get(book.id), fromHex(row.body), fromHex(row.signature), false);
  }
}

/** A job that was tried again has receipts of two channels. */
const isOf = (row, book) => row.lease in book.leases;

async function progress(book, { lease, stage, detail }) {
  let next = payer.staged(book, lease, stage, now());
  // A start that failed has no receipts to come; what was delivered has its final receipt.
  const never = stage === "FINISHED" && next.leases[lease].last === null && !["COMPLETED", "CANCELLED"].includes(detail?.reason);
  if (never) next = { ...next, leases: { ...next.leases, [lease]: { ...next.leases[lease], over: true } } };
  if (next !== book) await keep(next);
  say({ what: "stage", id: book.id, lease, job: readTerms(next.leases[lease].terms).job, stage });
  if (never && payer.over(next) && !next.keep) await end(book.id);
  // A lease of a kept channel is settled when its voucher is in; the channel is once it ended on chain.
  if (stage === "SETTLED" && (books.get(book.id).endSent || detail?.tx)) await ended(book.id);
  if (never || stage === "SETTLED") count();
}

async function end(id) {
  const book = { ...books.get(id), endSent: true };
  await keep(book);
  await sendEnd(book);
  say({ what: "end", id, signed: book.signed });
  count();
}

async function sendEnd(book) {
  const signature = await sign(book.privateKey, endMessage(fromHex(book.id), book.signed));
  send("EndSent", { end: [fromHex(book.id), book.signed, signature] });
}
