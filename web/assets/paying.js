// This page's side of the payer: starts the worker, tells it what to do, hears what it did.

import { token } from "./api.js";
import { unfinished } from "./payer.js";
import { readTerms } from "./records.js";
import * as vault from "./vault.js";

const orders = new BroadcastChannel("tally-orders");
const told = new BroadcastChannel("tally-payer");
const listeners = new Set();
let worker;

told.onmessage = ({ data }) => listeners.forEach((listener) => listener(data));

/** Call *listener* with everything that the paying tab says. */
export const hear = (listener) => listeners.add(listener);

/** An order to whichever tab pays. */
export const order = (message) => orders.postMessage({ ...message, token: token() });

/** An order whose *answer* about *lease* is waited for; throws if no tab of this browser gives it. */
export function ordered(message, answer, within = 20_000) {
  return new Promise((done, failed) => {
    const listener = (heard) => heard.what === answer && heard.lease === message.lease && finish(done);
    const timer = setTimeout(() => finish(() => failed(new Error("the payer of this browser does not answer: load this page again"))), within);
    const finish = (how) => {
      clearTimeout(timer);
      listeners.delete(listener);
      how();
    };
    listeners.add(listener);
    order(message);
  });
}

/** The worker of this page: it pays if no other tab of this browser does. */
export function startPayer(magic) {
  if (worker) return;
  worker = new Worker(new URL("./payer-worker.js", import.meta.url), { type: "module", name: "tally payer" });
  worker.postMessage({ do: "start", magic, token: token() });
  hear(show);
  askBeforeClosing();
}

function show(message) {
  const place = document.getElementById("payer");
  if (message.what === "paying") say(place, message.channels ? `This browser answers the receipts of ${message.channels} channel${message.channels === 1 ? "" : "s"}` : "");
  if (message.what === "refused") say(place, `The market refused this browser's payer: ${message.message}`, true);
  if (message.what === "fault") say(place, `The payer in this browser stumbled: ${message.message}`, true);
  if (message.what === "note" && message.message) say(place, `A receipt was not paid: ${message.message}`, true);
}

function say(place, text, warn = false) {
  place.textContent = text;
  place.hidden = !text;
  place.classList.toggle("warn", warn);
}

/** Following a link keeps paying on the next page; closing the tab does not, and says so. */
function askBeforeClosing() {
  let inside = false;
  let live = 0;
  hear((message) => message.what === "paying" && (live = message.channels));
  document.addEventListener("click", ({ target }) => {
    const link = target.closest?.("a[href]");
    inside = Boolean(link && link.origin === location.origin);
  });
  document.addEventListener("submit", () => (inside = true));
  window.addEventListener("beforeunload", (event) => {
    if (live && !inside) event.preventDefault();
    inside = false;
  });
}

/** `{book, lease, terms}` of the job that this browser pays, if it does; the latest, where a provider was lost before. */
export async function payingFor(job) {
  const found = [];
  for (const book of await vault.open()) {
    for (const name of unfinished(book)) {
      const terms = readTerms(book.leases[name].terms);
      if (terms.job === job && !book.endSent) found.push({ book, lease: book.leases[name], terms });
    }
  }
  return found.sort((a, b) => (a.terms.lease < b.terms.lease ? 1 : -1))[0] ?? null;
}
