// Agreeing to a quote: what is checked before the wallet is asked, and what happens after it signed.
//
// A quote is *fresh*, and its channel is opened by the wallet, or *warm*: it is paid from a channel that
// was kept open, and the wallet is asked only for what is lacking in it. The browser's pages and the TypeScript
// client agree by these; what they stand on is the `Ground`.

import { Problem } from "../net/http.js";
import { fromHex, messageOf, same, toHex } from "../crypto/bytes.js";
import { sign } from "../crypto/ed25519.js";
import { moment } from "../chain/door.js";
import { channelAddress, faultOf, judge } from "../chain/judge.js";
import { readUtxos, reserveOf } from "../chain/opentx.js";
import { earlier, lacking, late, left, newBook, newLease } from "../money/payer.js";
import { isOpen } from "../money/books.js";
import { named } from "../money/jobspec.js";
import { constsOf, quoteFault, readTerms, Refused, verifyTerms } from "../money/records.js";
import { sealTo } from "../crypto/seal.js";
import { signedStep, stillAlone } from "./steps.js";
import { withSignatures } from "../chain/signed.js";
import { ADA_SCRIPTS } from "../chain/scripts.js";
import { addressOf, ownAddresses, paymentHash, sameNetwork } from "./cip30.js";

/**
 * @import { Bytes } from "../crypto/bytes.js"
 * @import { JobView, QuoteView, Built } from "../net/answers.js"
 * @import { Judged, Step } from "../chain/judge.js"
 * @import { PostedSpec } from "../money/jobspec.js"
 * @import { Order } from "../paying/orders.js"
 * @import { PaidLease } from "../money/payer.js"
 * @import { Output } from "../chain/transaction.js"
 * @import { Terms } from "../money/records.js"
 * @import { Begun, Paying, Stored, Vault } from "../money/books.js"
 * @import { WalletApi } from "./cip30.js"
 * @import { Ground } from "./ground.js"
 */

/** @typedef {Stored & {spec: PostedSpec}} Posted a book of a job that was posted here */

/**
 * A quote that holds.
 * @typedef {object} Agreed
 * @property {QuoteView} quote as the market shows it
 * @property {Stored} mine the book of the quote's channel
 * @property {Posted} asked the book with which the job was posted
 * @property {Terms} terms
 * @property {Bytes} body
 * @property {Paying | null} warm the book, if the channel is open already
 * @property {{[name: string]: string}} secrets
 * @property {Bytes} adapterSignature
 * @property {number} [aheadMs] to sign ahead for once it delivers, so that the page may be closed
 * @property {number} keepMs how long a channel that it opens stays open once it is idle; 0: it ends with its job
 */

/** @typedef {Judged & {reserve: bigint}} JudgedOpen */
/** @typedef {{api: WalletApi, cbor: string, extra: bigint, checked: JudgedOpen}} Ready to be signed by the wallet */

const KEEP_MS = 600_000; // as every client of a consumer (marketplace/domain/money/keep.py)
const OPEN_MOST = 8192; // hex digits that a provider reads
const LOVELACE_PER_BYTE = 4310; // of the least that an output holds, on every network since Babbage

/**
 * Channels that a next job may be paid from: kept, open, and their key is here.
 * @type {(vault: Vault, account: string) => Promise<Paying[]>}
 */
export const reusable = async (vault, account) =>
  (await vault.open()).filter((book) => book.account === account && book.keep && !book.endSent && !book.stopped);

/**
 * The quote of *job*, held against what was asked for; Refused names what differs.
 * @param {Ground} ground
 * @param {JobView} job
 * @returns {Promise<Agreed>}
 */
export async function examine({ vault, magic, secrets }, job) {
  const { quote } = job;
  if (!quote) throw new Refused("NO_QUOTE", "this job has no quote now");
  const books = await vault.all();
  const mine = books.find((book) => book.id === quote.session_vk);
  const posts = books.filter(posted).filter((book) => book.job === job.id).sort((a, b) => (b.made ?? 0) - (a.made ?? 0));
  const asked = posts.find((book) => book === mine) ?? posts[0];
  if (!mine || !asked) throw new Refused("ELSEWHERE", "this job was posted from another browser or program: its key is there");
  const body = fromHex(quote.terms);
  const terms = await verifyTerms(body, fromHex(quote.adapter_signature));
  const wanted = { job: job.id, magic, spec: asked.spec, account: mine.account, sessionVk: fromHex(mine.id), spent: job.spent };
  const warm = isOpen(mine) ? mine : null;
  const fault = quoteFault(terms, wanted, Date.now()) ?? channelFault(quote, warm, terms);
  if (fault) throw new Refused("QUOTE_REFUSED", `the quote is not what was asked for: ${fault}`);
  capOf(terms, asked.spec, before(books, terms, late)); // refused before a wallet is asked
  return { quote, mine, asked, terms, body, warm, secrets: await secrets(asked), adapterSignature: fromHex(quote.adapter_signature), keepMs: Math.min(KEEP_MS, quote.offer?.keep_most_ms ?? 0) };
}

/** @type {(book: Stored) => book is Posted} */
const posted = (book) => book.spec !== undefined;

/**
 * What earlier leases of the job may still come to (*most* of each that can still be signed for).
 * @type {(books: Stored[], terms: Terms, most: (lease: PaidLease) => bigint) => bigint}
 */
function before(books, terms, most) {
  const each = books.flatMap((book) => earlier(book, terms.job, terms.lease).map(([, lease]) => (book.state === "OPEN" ? most(lease) : late(lease))));
  return each.reduce((sum, one) => sum + one, 0n);
}

/**
 * The most to sign for the lease: its ceiling, within what *used* leaves of the job's budget.
 * @type {(terms: Terms, spec: PostedSpec, used: bigint) => bigint}
 */
function capOf(terms, spec, used) {
  const rest = BigInt(named(spec).price.budget) - used;
  if (rest <= 0n) throw new Refused("BUDGET_SPENT", "what was signed at providers before is all of the job's budget");
  return rest < BigInt(terms.ceiling) ? rest : BigInt(terms.ceiling);
}

/**
 * What may be signed for the lease once the job's earlier leases get no more than it leaves of the budget: a
 * provider that was lost may come back and bill on, up to the cap in this browser's books. So that cap is
 * lowered there, and what is then read from the books counts, not what was meant to be written.
 * @param {Ground} ground
 * @param {Agreed} agreed
 */
async function finalCap({ vault, order }, { terms, asked }) {
  const books = await vault.all();
  if (books.some((book) => book.state === "OPEN" && earlier(book, terms.job, terms.lease).length)) {
    const ended = before(books.filter((book) => book.state !== "OPEN"), terms, late);
    const most = BigInt(named(asked.spec).price.budget) - ended - capOf(terms, asked.spec, before(books, terms, late));
    await order({ do: "cap", job: terms.job, lease: terms.lease, most });
  }
  return capOf(terms, asked.spec, before(await vault.all(), terms, (lease) => lease.cap));
}

/**
 * Null if the quote's channel is fresh and unused, or kept open here and of the same rules.
 * @type {(quote: QuoteView, warm: Paying | null, terms: Terms) => string | null}
 */
function channelFault(quote, warm, terms) {
  if (!warm) return quote.channel === "fresh" ? null : "it reuses a channel that is not open";
  const [lease] = Object.values(warm.leases);
  if (quote.channel === "fresh") return "it calls a channel fresh that was used before";
  if (warm.endSent || warm.stopped) return "its channel is ending";
  return lease && constsOf(readTerms(lease.terms)) === constsOf(terms) ? null : "its channel has other rules";
}

/**
 * Names of secrets whose values this browser does not have.
 * @type {(agreed: Agreed) => string[]}
 */
export const missingSecrets = ({ asked, secrets }) => asked.spec.secrets.filter((name) => !(name in secrets));

/**
 * For a warm quote: what is left in the channel, and what the wallet would have to add.
 * @param {Paying} warm
 * @param {Terms} terms
 */
export function warmth(warm, terms) {
  return { left: left(warm), lacking: lacking(warm, terms.lease, BigInt(terms.ceiling)) };
}

/**
 * The unsigned open transaction, read and compared: `{tx, cbor, checked, api, …}`; no wallet window.
 * *extra* lovelace are put aside in the channel for later jobs.
 * @param {Ground} ground
 * @param {Agreed} agreed
 * @returns {Promise<Ready>}
 */
export async function prepare({ market, magic, connect, door }, agreed, extra = 0n, reserve = 0n) {
  const api = await connect();
  if (!(await sameNetwork(api, magic))) throw new Error("the wallet is on another network than this market");
  const address = await addressOf(api);
  if (!same(paymentHash(address), agreed.terms.consumer_vkh)) throw new Error("the wallet shows another account than the one signed in: sign in again");
  const [now, outputs, own] = await Promise.all([door().then((at) => moment(magic, at)), api.getUtxos(), ownAddresses(api)]);
  const utxos = outputs ?? [];
  const amount = extra ? Number(BigInt(agreed.terms.ceiling) + reserve + extra) : 0;
  /** @type {Built} */
  const made = await market.post("/v1/channels", { lease: agreed.terms.lease, address, utxos, amount }).catch((error) => {
    throw shortOf(error, agreed.terms, fromHex(address), magic === 764824073, extra);
  });
  const wanted = { terms: agreed.terms, address: fromHex(address), own, mainnet: magic === 764824073, utxos: readUtxos(utxos), extra, ...now };
  return { api, cbor: made.cbor, extra, checked: judgeOpen(fromHex(made.cbor), wanted) };
}

/** The wallet holds too little for the opening transaction; all in lovelace. */
export class Short extends Error {
  /** @param {{holds: bigint, needs: bigint, ceiling: bigint, reserve: bigint, address: string}} told */
  constructor({ holds, needs, ceiling, reserve, address }) {
    super("the wallet holds too little for this job");
    this.holds = holds;
    this.needs = needs;
    this.ceiling = ceiling;
    this.reserve = reserve;
    this.address = address;
  }
}

/**
 * What the market says is lacking, as the sum that a person reads; any other error as it is.
 * @type {(error: unknown, terms: Terms, address: Bytes, mainnet: boolean, extra: bigint) => unknown}
 */
function shortOf(error, terms, address, mainnet, extra) {
  const { holds, needs, address: shown } = error instanceof Problem && error.code === "FUNDS_SHORT" ? error.fields : {};
  if (holds === undefined || needs === undefined) return error;
  return new Short({ holds: BigInt(holds), needs: BigInt(needs), ceiling: BigInt(terms.ceiling) + extra, reserve: boundOf(terms, address, mainnet), address: String(shown) });
}

/**
 * The most that a channel's reserve may come to.
 * @type {(terms: Terms, address: Bytes, mainnet: boolean) => bigint}
 */
const boundOf = (terms, address, mainnet) =>
  reserveOf(channelAddress(fromHex(ADA_SCRIPTS.stub), address, mainnet), terms, LOVELACE_PER_BYTE);

/**
 * The open transaction judged: `{id, fee, amount, reserve, checks, ok}`.
 * @param {Bytes} bytes
 * @param {{terms: Terms, address: Bytes, own: Bytes[], mainnet: boolean, utxos: Map<string, Output>, extra: bigint, slot: number | null, nowMs: number}} wanted
 * @returns {JudgedOpen}
 */
export function judgeOpen(bytes, { terms, address, own, mainnet, utxos, extra, slot, nowMs }) {
  const least = BigInt(terms.ceiling) + extra;
  const bound = boundOf(terms, address, mainnet);
  const most = least + bound + 100_000n;
  /** @type {Step} */
  const wanted = { step: "open", mainnet, own, utxos, consts: terms, least, most, channel: null, slot, nowMs, references: new Map() };
  const judged = judge(bytes, wanted);
  return { ...judged, reserve: judged.amount - least };
}

/** @param {Agreed} agreed */
async function sealed({ asked, terms, secrets }) {
  /** @type {{[name: string]: string}} */
  const boxes = {};
  for (const name of asked.spec.secrets) {
    const value = secrets[name];
    if (value === undefined) throw new Refused("SECRET_MISSING", `the value of the secret ${name} is not here`);
    boxes[name] = toHex(await sealTo(terms.adapter_vk, value));
  }
  return boxes;
}

/**
 * Sign the terms, let the wallet sign the transaction, submit it, and start to pay: once, whoever else of this consumer's is about to.
 * @type {(ground: Ground, agreed: Agreed, ready: Ready, keepMs: number) => Promise<void>}
 */
export const accept = (ground, agreed, ready, keepMs) =>
  ground.alone(`open-${agreed.mine.id}`, () => open(ground, agreed, ready, keepMs));

/** @type {(ground: Ground, agreed: Agreed, ready: Ready, keepMs: number) => Promise<void>} */
async function open(ground, agreed, ready, keepMs) {
  const held = await ground.vault.load(agreed.mine.id);
  if (held?.begun) return finish(ground, held, held.begun); // another page had it signed: a second open would be paid from as well
  if (held?.state === "OPEN") throw new Refused("OPENED", "another page of this browser has opened this channel: load the page again");
  if (!ready.checked.ok) throw new Refused("OPEN_REFUSED", `the transaction is not the one that was agreed: ${faultOf(ready.checked)}. Nothing was signed`);
  const { mine, terms, body, adapterSignature } = agreed;
  const lease = newLease(body, adapterSignature, await finalCap(ground, agreed), agreed.aheadMs);
  const capacity = ready.checked.amount - ready.checked.reserve;
  const signature = toHex(await sign(mine.privateKey, body));
  const secrets = await sealed(agreed);
  await stillStands(ground, agreed);
  const witness = await ready.api.signTx(ready.cbor, true);
  await stillStands(ground, agreed); // people take their time in front of a wallet's window
  const begun = { lease: terms.lease, signature, secrets, tx: ready.checked.id, witness, open: handed(agreed.quote, ready.cbor, witness) };
  /** @type {Paying} */
  const book = newBook({ ...mine, locked: null, state: "OPENING", keep: keepMs > 0, keepMs, capacity, leases: { [terms.lease]: lease }, openTx: begun.tx, begun });
  await ground.vault.keep(book); // before the money moves: a channel without its book could only be closed
  await finish(ground, book, begun);
  await forget(ground, agreed);
}

/**
 * Money is not sent for a quote that is over: it would lie in a channel that no job pays from.
 * @type {(ground: Ground, agreed: Agreed) => Promise<void>}
 */
async function stillStands({ market }, { terms, body }) {
  /** @type {JobView} */
  const view = await market.get(`/v1/jobs/${terms.job}`);
  if (view.state === "QUOTED" && view.quote?.terms === toHex(body)) return;
  throw new Refused("QUOTE_GONE", "This quote is over: nothing was sent, and nothing is paid. Ask for a new one");
}

/**
 * The signed open as hex, for a provider that serves before a block holds it (docs/decisions/0115); "" for any other,
 * and where the wallet's signatures are in a form that is not read here: its lease then waits for a block.
 * @type {(quote: QuoteView, cbor: string, witness: string) => string}
 */
function handed(quote, cbor, witness) {
  if (!quote.offer?.allowance) return "";
  try {
    const signed = toHex(withSignatures(fromHex(cbor), fromHex(witness)));
    return signed.length <= OPEN_MOST ? signed : "";
  } catch (error) {
    console.info(`the open is not handed over: ${messageOf(error)}`);
    return "";
  }
}

/**
 * What the wallet signed is sent, and the terms after it; repeatable until both have arrived.
 * @param {Ground} ground
 * @param {Stored} book
 * @param {Begun} begun
 */
export async function finish({ market, vault, order }, book, { lease, signature, tx, witness, secrets, open: handedOver }) {
  await market.post(`/v1/channels/${book.id}/witness`, { tx, witness });
  const signed = { session_signature: signature, channel_tx: tx, secrets, ...(handedOver ? { open_tx: handedOver } : {}) };
  await market.post(`/v1/leases/${lease}/sign`, signed, { once: `sign-${lease}` });
  await vault.keep({ ...book, state: "OPEN", begun: null });
  await order({ do: "watch", id: book.id });
}

/**
 * A warm quote: signed by the session key alone, after the wallet added what was lacking.
 * @param {Ground} ground
 * @param {Agreed & {warm: Paying}} agreed
 */
export async function acceptWarm(ground, agreed) {
  const { market, order } = ground;
  const { warm: mine, terms, body, adapterSignature } = agreed;
  const cap = await finalCap(ground, agreed);
  const more = lacking(mine, terms.lease, BigInt(terms.ceiling));
  if (more) {
    await signedStep(ground, mine.id, "topup", more);
    await order({ do: "topped", id: mine.id, amount: more });
  } else await stillAlone(ground, mine);
  /** @type {Order} */
  const addition = { do: "lease", id: mine.id, lease: terms.lease, terms: body, adapterSignature, cap, aheadMs: agreed.aheadMs ?? 0 };
  await order(addition); // before the market hears of it: its receipts are expected now
  const signed = { session_signature: toHex(await sign(mine.privateKey, body)), channel_tx: "", secrets: await sealed(agreed) };
  try {
    await market.post(`/v1/leases/${terms.lease}/sign`, signed, { once: `sign-${terms.lease}` });
  } catch (error) {
    if (error instanceof Problem && error.status >= 400 && error.status < 500) await order({ do: "over", id: mine.id, lease: terms.lease }).catch(() => {}); // the first error is the one to say
    throw error;
  }
  await forget(ground, agreed);
}

/**
 * Values of secrets that were sealed are kept no longer.
 * @type {(ground: Ground, agreed: Agreed) => Promise<void>}
 */
async function forget({ vault }, { asked, mine }) {
  if (asked.id !== mine.id && asked.locked) await vault.keep({ ...asked, locked: null });
}
