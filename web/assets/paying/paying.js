// This page's side of the payer: starts the worker, tells it what to do, hears what it did.

import { token } from "../net/api.js";
import { byId, hit } from "../ui/dom.js";
import { unfinished } from "../money/payer.js";
import { readTerms } from "../money/records.js";
import * as vault from "../money/vault.js";

/**
 * @import { Paying } from "../money/books.js"
 * @import { PaidLease } from "../money/payer.js"
 * @import { Terms } from "../money/records.js"
 * @import { Order, Said } from "./orders.js"
 */

const orders = new BroadcastChannel("tally-orders");
const told = new BroadcastChannel("tally-payer");
/** @type {Set<(said: Said) => void>} */
const listeners = new Set();
/** @type {Worker | undefined} */
let worker;

told.onmessage = (/** @type {MessageEvent<Said>} */ { data }) => listeners.forEach((listener) => listener(data));

/**
 * Call *listener* with everything that the paying tab says.
 * @type {(listener: (said: Said) => void) => void}
 */
export const hear = (listener) => void listeners.add(listener);

const AGAIN_MS = 400;
const FETCHED_AGAIN_MS = 2000;
const GIVEN_MS = 20_000;

/**
 * An order to whichever tab pays, said again until it is taken: a page that was just loaded has a payer
 * that is still starting. Throws if no tab of this browser takes it.
 * @param {Order} message
 * @returns {Promise<void>}
 */
export function order(message) {
  const name = crypto.randomUUID();
  return new Promise((done, failed) => {
    const send = () => orders.postMessage({ ...message, name, token: token() });
    const again = setInterval(send, AGAIN_MS);
    const end = (/** @type {() => void} */ how) => {
      clearInterval(again);
      clearTimeout(limit);
      listeners.delete(listener);
      how();
    };
    const listener = (/** @type {Said} */ heard) => {
      if (heard.what === "took" && heard.name === name) end(done);
    };
    const limit = setTimeout(() => end(() => failed(new Error("the payer of this browser does not answer: load this page again"))), GIVEN_MS);
    listeners.add(listener);
    send();
  });
}

/**
 * The worker of this page: it pays if no other tab of this browser does.
 * @param {number} magic
 */
export function startPayer(magic) {
  if (worker) return;
  hear(show);
  askBeforeClosing();
  begin(magic);
}

/** @param {number} magic */
function begin(magic) {
  const made = new Worker(new URL("./payer-worker.js", import.meta.url), { type: "module", name: "tally payer" });
  worker = made;
  made.addEventListener("error", (event) => {
    if (event instanceof ErrorEvent) return; // what it says itself, and goes on after; else its scripts did not arrive
    made.terminate();
    say(byId("payer"), "The payer did not arrive in this browser, and answers no receipt. It is asked for again.", true);
    setTimeout(() => begin(magic), FETCHED_AGAIN_MS);
  });
  made.postMessage({ do: "start", magic, token: token() });
}

/** @type {(message: Said) => void} */
function show(message) {
  const place = byId("payer");
  if (message.what === "paying") say(place, message.channels ? `This browser answers the receipts of ${message.channels} channel${message.channels === 1 ? "" : "s"}` : "");
  if (message.what === "refused") say(place, `The market refused this browser's payer: ${message.message}`, true);
  if (message.what === "fault") say(place, `The payer in this browser stumbled: ${message.message}`, true);
  if (message.what === "note" && message.message) say(place, `A receipt was not paid: ${message.message}`, true);
}

/** @type {(place: HTMLElement, text: string, warn?: boolean) => void} */
function say(place, text, warn = false) {
  place.textContent = text;
  place.hidden = !text;
  place.classList.toggle("warn", warn);
}

/** Following a link keeps paying on the next page; closing the tab does not, and says so. */
function askBeforeClosing() {
  let inside = false;
  let live = 0;
  hear((message) => {
    if (message.what === "paying") live = message.channels;
  });
  document.addEventListener("click", (event) => {
    const link = hit(event, "a[href]");
    inside = link instanceof HTMLAnchorElement && link.origin === location.origin;
  });
  document.addEventListener("submit", () => (inside = true));
  window.addEventListener("beforeunload", (event) => {
    if (live && !inside) event.preventDefault();
    inside = false;
  });
}

/**
 * `{book, lease, terms}` of the job that this browser pays, if it does; the latest, where a provider was lost before.
 * @param {string} job
 * @returns {Promise<{book: Paying, lease: PaidLease, terms: Terms} | null>}
 */
export async function payingFor(job) {
  const found = [];
  for (const book of await vault.open()) {
    for (const [, lease] of unfinished(book)) {
      const terms = readTerms(lease.terms);
      if (terms.job === job && !book.endSent) found.push({ book, lease, terms });
    }
  }
  return found.sort((a, b) => (a.terms.lease < b.terms.lease ? 1 : -1))[0] ?? null;
}
