// One job, live: its quote and payment, state, log, charts, and its end.

import { events, get, pause, post, token } from "../net/api.js";
import { Chart, Line, Stick } from "../ui/charts.js";
import { toHex } from "../crypto/bytes.js";
import { newKey } from "../crypto/ed25519.js";
import { byId, hit, the } from "../ui/dom.js";
import { inWords, make, refresh, sure, wrong } from "../ui/live.js";
import { followLog } from "../job/log.js";
import { openPort, sharePort } from "../job/ports.js";
import { Quote } from "../job/quote.js";
import { hear, order, payingFor } from "../paying/paying.js";
import { about, ada, duration, owed, unitMs } from "../money/units.js";
import * as vault from "../money/vault.js";

/**
 * @import { JobView, ReceiptRow, Sample, TickEvent } from "../net/answers.js"
 * @import { Reader } from "../ui/dom.js"
 * @import { Said } from "../paying/orders.js"
 */

const LIVE = new Set(["STARTING", "RUNNING", "PAUSED", "ENDING"]);
const page = byId("job");
const job = page.dataset.job ?? "";
const ceiling = Number(page.dataset.ceiling ?? 0);
const money = new Chart("cost", (svg) => new Line(svg, { most: ceiling })); // against the most that it can cost
const use = new Chart("gpu", (svg) => new Line(svg, { most: 1000 }));
const ticks = new Chart("ticks", (svg) => new Stick(svg));
let state = page.dataset.state ?? "";

export async function start(/** @type {Reader} */ { magic }) {
  if (!token()) return;
  const quote = new Quote(job, magic, showAway);
  document.addEventListener("click", (event) => act(event, quote));
  hear(heard);
  earlier().catch(() => {}).finally(() => follow(quote));
  followLog(job, page.dataset.logLease, Number(page.dataset.logEnd));
  showAway();
  if (["POSTED", "QUEUED", "QUOTED"].includes(state)) await quote.show();
  setInterval(() => look(quote), 2500); // what no event told: confirmations, a settlement after the end
}

async function look(/** @type {Quote} */ quote) {
  if (document.visibilityState !== "visible") return;
  const before = state;
  await refresh().catch(() => {});
  if (state === "ENDED") return;
  /** @type {JobView | null} */
  const view = await get(`/v1/jobs/${job}`).catch(() => null);
  if (!view) return;
  state = view.state;
  if (before !== state && state === "QUOTED") await quote.show();
  if (LIVE.has(state) || state === "ENDED") quote.hide();
}

// ---- following -----------------------------------------------------------------------------

async function follow(/** @type {Quote} */ quote) {
  let after = "";
  for (let attempt = 0; ; attempt++) {
    try {
      for await (const [name, data] of events(`/v1/jobs/${job}/events?after=${after}`)) {
        attempt = 0;
        if (name === "event") {
          after = data.id;
          soon();
        } else if (name === "tick") tick(data);
        else if (name === "telemetry") sample(data);
        else if (name === "end") {
          state = "ENDED";
          quote.hide();
          await refresh();
          await tidy();
          return;
        }
      }
    } catch {
      // The market was restarted or the line cut: go on from the last event.
    }
    await pause(Math.min(5000, 300 * 2 ** attempt));
  }
}

/** A job that has ended needs neither its unused keys nor values of secrets. */
async function tidy() {
  for (const book of await vault.all()) if (book.job === job && book.state === "NEW") await vault.forget(book.id);
}

let planned = 0;
function soon() {
  clearTimeout(planned);
  planned = setTimeout(() => refresh().catch(() => {}), 120);
}

/** @type {(id: string, text: string, title?: string) => void} */
const put = (id, text, title = "") => {
  const el = document.getElementById(id);
  if (!el) return;
  if (el.textContent !== text) el.textContent = text;
  if (title) el.title = title;
};

/** What the charts would show had this page been open from the start. */
async function earlier() {
  /** @type {[{items: Sample[]}, ReceiptRow[]]} */
  const [samples, receipts] = await Promise.all([
    get(`/v1/jobs/${job}/telemetry`).catch(() => ({ items: [] })),
    LIVE.has(state) || state === "ENDED" ? receiptsOf().catch(() => []) : [],
  ]);
  for (const row of receipts) cost(row.at_ms, row.lease_owed);
  if (receipts.length > (ticks.drawn?.seen ?? 0)) ticks.shown().show(receipts.length, false);
  samples.items.forEach(sample);
}

async function receiptsOf() {
  /** @type {ReceiptRow[]} */
  const rows = [];
  /** @type {string | null} */
  let cursor = "";
  while (cursor !== null && rows.length < 4000) {
    /** @type {{items: ReceiptRow[], next: string | null}} */
    const part = await get(`/v1/jobs/${job}/receipts?${new URLSearchParams({ limit: "1000", ...(cursor && { cursor }) })}`);
    rows.push(...part.items);
    cursor = part.next || null;
  }
  const newest = rows.at(-1)?.lease;
  return rows.filter((row) => row.lease === newest);
}

/** @type {(at: number, lovelace: number) => void} */
function cost(at, lovelace) {
  const line = money.shown();
  line.add(at, lovelace);
  put("cost-now", about(lovelace), ada(lovelace));
  put("cost-top", line.top ? `${about(Math.round(line.top))}${ceiling ? ", the most it can cost," : ""} at the top` : "");
  put("cost-span", line.span ? `${duration(line.span)} shown` : "");
}

function tick(/** @type {TickEvent} */ { tick: number, unit_ms, spent, owed: due, at_ms }) {
  ticks.shown().show(number);
  cost(at_ms, due ?? spent);
  put("spent", about(spent), ada(spent));
  const texts = { ticks: String(number), delivered: duration(unit_ms), "tick-now": String(number) };
  for (const [id, text] of Object.entries(texts)) put(id, text);
}

function sample(/** @type {Sample} */ { at_ms, util_permille, memory_mib, temperature_c }) {
  if (util_permille === undefined) return;
  const line = use.shown();
  line.add(at_ms, util_permille);
  put("gpu-now", `${Math.round(util_permille / 10)} %`);
  put("gpu-span", line.span ? `${duration(line.span)} shown` : "");
  const more = [memory_mib !== undefined && `${(memory_mib / 1024).toFixed(1)} GB`, temperature_c !== undefined && `${temperature_c} °C`];
  put("gpu-more", more.filter(Boolean).join(" · "));
}

function heard(/** @type {Said} */ message) {
  if (message.what === "end" || (message.what === "stage" && message.job === job)) soon();
  if (message.what === "paying" || message.what === "ahead") showAway();
}

// ---- acting --------------------------------------------------------------------------------

/** @type {(event: Event, quote: Quote) => Promise<void>} */
async function act(event, quote) {
  const button = hit(event, "button[data-action]");
  if (!(button instanceof HTMLButtonElement)) return;
  wrong("");
  if (button.dataset.action === "stop" && !sure(button, "End job for good?")) return; // it cannot be undone
  button.disabled = true;
  try {
    await ACTIONS[button.dataset.action ?? ""]?.(button, quote);
  } catch (error) {
    button.disabled = false;
    wrong(inWords(error));
  }
}

/** @type {{[action: string]: (button: HTMLButtonElement, quote: Quote) => Promise<void>}} */
const ACTIONS = {
  /** The provider stops it and sends the last receipt; the payer answers it and ends the channel. */
  stop: async (button) => {
    await post(`/v1/jobs/${job}/stop`);
    button.blur();
    await refresh();
  },
  "open-port": openPort,
  "share-port": sharePort,
  resume: async (_button, quote) => {
    const key = await newKey();
    const id = toHex(key.verifyKey);
    const before = (await vault.all()).find((book) => book.job === job);
    if (!before?.spec) throw new Error("this job was posted from another browser: resume it there");
    await vault.keep({ id, privateKey: key.privateKey, state: "NEW", made: Date.now(), account: before.account, job, spec: before.spec, ...(before.keep !== undefined && { keep: before.keep }) });
    quote.agreedAlready = true;
    /** @type {JobView} */
    const view = await post(`/v1/jobs/${job}/resume`, { session_vk: id }, { once: id });
    state = view.state;
    await refresh();
    if (state === "QUOTED") await quote.show();
  },
  download: async (button) => {
    const { sha256 = "", path = "" } = button.dataset;
    const answer = await fetch(`/v1/jobs/${job}/outputs/${sha256}`, { headers: { Authorization: `Bearer ${token()}` } });
    if (!answer.ok) throw new Error(`the output cannot be had now (${answer.status})`);
    const bytes = await answer.arrayBuffer();
    const hash = toHex(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)));
    if (hash !== sha256) throw new Error("the output is not what the provider announced: its hash differs");
    const archive = new TextDecoder("latin1").decode(bytes.slice(257, 262)) === "ustar"; // a tar, whatever the path ends in
    const name = path.split("/").pop() || "output";
    const link = make("a", { href: URL.createObjectURL(new Blob([bytes])), download: archive && !name.endsWith(".tar") ? `${name}.tar` : name });
    link.click();
    URL.revokeObjectURL(link.href);
    button.disabled = false;
  },
};

async function showAway() {
  const paid = await payingFor(job);
  const section = byId("away");
  section.hidden = !paid || ["ENDED", "ENDING"].includes(state);
  if (!paid || section.hidden) return;
  const { book, lease, terms } = paid;
  const all = lease.approved >= lease.cap || Boolean(lease.aheadMs);
  byId("away-more").hidden = all;
  byId("away-all").hidden = !all;
  put("away-all", lease.aheadMs ? "With its first receipt it is signed for up to its end: wait for the first tick." : `It is signed for up to its end, at most ${about(lease.cap)}: this page may be closed.`);
  const select = the("ahead-for", HTMLSelectElement);
  const amount = () => {
    const most = lease.cap - lease.approved;
    const wanted = owed(unitMs(Number(select.value), terms.units_milli), terms.rate_micro);
    put("ahead-amount", about(wanted < most ? wanted : most), ada(wanted < most ? wanted : most));
  };
  amount();
  select.onchange = amount;
  byId("ahead").onclick = () => order({ do: "ahead", id: book.id, lease: terms.lease, ms: Number(select.value) }).catch((error) => wrong(error.message));
}
