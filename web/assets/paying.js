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

const AGAIN_MS = 400;
const GIVEN_MS = 20_000;

/**
 * An order to whichever tab pays, said again until it is taken: a page that was just loaded has a payer
 * that is still starting. Throws if no tab of this browser takes it.
 */
export function order(message) {
  const name = crypto.randomUUID();
  return new Promise((done, failed) => {
    const say = () => orders.postMessage({ ...message, name, token: token() });
    const again = setInterval(say, AGAIN_MS);
    const end = (how) => {
      clearInterval(again);
      clearTimeout(limit);
      listeners.delete(listener);
      how();
    };
    const listener = (heard) => heard.what === "took" && heard.name === name && end(done);
    const limit = setTimeout(() => end(() => failed(new Error("the payer of this browser does not answer: load this page again"))), GIVEN_MS);
    listeners.add(listener);
    say();
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
