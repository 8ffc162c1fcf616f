// One job, live: its quote and payment, state, log, charts, and its end.

import { events, get, pause, post, token } from "./api.js";
import { accept, examine, finish, prepare } from "./agree.js";
import { Line, Stick } from "./charts.js";
import { toHex } from "./bytes.js";
import { newKey } from "./crypto.js";
import { make, refresh, wrong } from "./live.js";
import { bookOf, hear, order } from "./paying.js";
import { readTerms, Refused } from "./records.js";
import { ada, duration, owed, rate, unitMs } from "./units.js";
import * as vault from "./vault.js";
import { walletSaid } from "./wallet.js";

const LOG_KEPT = 400_000;
const LIVE = new Set(["STARTING", "RUNNING", "PAUSED", "ENDING"]);
const page = document.getElementById("job");
const job = page?.dataset.job;
const charts = {};
let state = page?.dataset.state;

export async function start({ magic }) {
  if (!token()) return;
  document.addEventListener("click", act);
  hear(heard);
  follow();
  followLog();
  showAway();
  if (["POSTED", "QUEUED", "QUOTED"].includes(state)) await offer(magic);
  setInterval(() => look(magic), 2500); // what no event told: confirmations, a settlement after the end
}

async function look(magic) {
  if (document.visibilityState !== "visible") return;
  const before = state;
  await refresh().catch(() => {});
  if (state === "ENDED") return;
  const view = await get(`/v1/jobs/${job}`).catch(() => null);
  if (!view) return;
  state = view.state;
  if (before !== state && state === "QUOTED") await offer(magic);
  if (!LIVE.has(state)) return;
  document.getElementById("pay").hidden = true;
}

// ---- paying --------------------------------------------------------------------------------

async function offer(magic) {
  const view = await get(`/v1/jobs/${job}`);
  if (!view.quote) return;
  const section = document.getElementById("pay");
  const body = document.getElementById("pay-body");
  section.hidden = false;
  body.replaceChildren(make("p", { role: "status" }, "Reading the terms and the transaction …"));
  try {
    const agreed = await examine(view, magic);
    if (agreed.mine.state === "OPENING") return await goOn(agreed.mine);
    const ready = await prepare(agreed, magic);
    body.replaceChildren(...summary(agreed, ready, () => pay(agreed, ready)));
  } catch (error) {
    body.replaceChildren(make("p", { class: "problem", role: "alert" }, error instanceof Refused ? error.message : walletSaid(error)));
    if (!(error instanceof Refused)) body.append(make("p", {}, make("a", { href: `/sign-in?to=/jobs/${job}`, class: "button" }, "Connect the wallet")));
  }
}

function summary({ terms }, { checked }, go) {
  const fact = (name, value, hint) => make("div", {}, make("dt", {}, name), make("dd", {}, value, hint ? make("small", {}, ` ${hint}`) : ""));
  const check = ({ ok, text }) => make("li", { class: ok ? "ok" : "no" }, text);
  return [
    make("p", {}, "Your wallet will sign one transaction. This page has read its bytes:"),
    make("dl", { class: "facts wide" },
      fact("Into the channel", ada(checked.amount)),
      fact("Of that, the most this job can cost", ada(terms.ceiling)),
      fact("Reserve", ada(checked.reserve), "comes home at the end"),
      fact("Fee of the chain", ada(checked.fee)),
      fact("Price", rate(terms.rate_micro)),
      fact("Longest", duration(terms.max_duration_ms))),
    make("ul", { class: "checks", "aria-label": "What was checked" },
      make("li", { class: "ok" }, "the provider signed these terms, and they are what you asked for"), ...checked.checks.map(check)),
    make("p", { class: "actions" },
      payButton(checked.ok, go),
      make("button", { type: "button", class: "plain", onclick: () => decline(terms.lease) }, "Decline")),
  ];
}

function payButton(ok, go) {
  const button = make("button", { type: "button", id: "pay-now", disabled: !ok }, "Sign and start");
  button.onclick = go;
  return button;
}

async function pay(agreed, ready) {
  const button = document.getElementById("pay-now");
  button.disabled = true;
  button.textContent = "Waiting for the wallet …";
  wrong("");
  try {
    await accept(agreed, ready);
    document.getElementById("pay").hidden = true;
    document.getElementById("main").focus();
    await refresh();
    showAway();
  } catch (error) {
    wrong(walletSaid(error));
    if ((await vault.load(agreed.mine.id))?.state === "OPENING") {
      button.textContent = "Try again";
      button.onclick = () => location.reload();
    } else button.textContent = "Sign and start";
    button.disabled = false;
  }
}

/** The wallet has signed already, and the market did not hear all of it: no second signature. */
async function goOn(book) {
  document.getElementById("pay-body").replaceChildren(make("p", { role: "status" }, "Going on where it stopped: the wallet has signed already …"));
  await finish(book);
  document.getElementById("pay").hidden = true;
  await refresh();
}

async function decline(lease) {
  await post(`/v1/leases/${lease}/decline`).catch((error) => wrong(error.message));
  document.getElementById("pay").hidden = true;
  await refresh();
}

// ---- following -----------------------------------------------------------------------------

async function follow() {
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
          await refresh();
          return;
        }
      }
    } catch {
      // The market was restarted or the line cut: go on from the last event.
    }
    await pause(Math.min(5000, 300 * 2 ** attempt));
  }
}

let planned;
function soon() {
  clearTimeout(planned);
  planned = setTimeout(() => refresh().catch(() => {}), 120);
}

function chart(name, made) {
  document.getElementById("charts").hidden = false;
  charts[name] ??= made(document.getElementById(`chart-${name}`));
  return charts[name];
}

function tick({ tick: number, unit_ms, spent, at_ms }) {
  chart("ticks", (svg) => new Stick(svg)).show(number);
  chart("cost", (svg) => new Line(svg)).add(at_ms, spent);
  const texts = { spent: ada(spent), ticks: String(number), delivered: duration(unit_ms), "tick-now": `${number}`, "cost-now": ada(spent) };
  for (const [id, text] of Object.entries(texts)) {
    const el = document.getElementById(id);
    if (el) el.textContent = text;
  }
}

function sample({ at_ms, util_permille }) {
  if (util_permille === undefined) return;
  chart("gpu", (svg) => new Line(svg, { most: 1000 })).add(at_ms, util_permille);
  document.getElementById("gpu-now").textContent = `${Math.round(util_permille / 10)} %`;
}

async function followLog() {
  const place = document.getElementById("log");
  let lease = page.dataset.logLease;
  let at = Number(page.dataset.logEnd);
  for (let attempt = 0; ; attempt++) {
    const query = new URLSearchParams({ follow: "true", from: String(at), ...(lease && { lease }) });
    try {
      for await (const [name, data] of events(`/v1/jobs/${job}/logs?${query}`)) {
        attempt = 0;
        if (name === "end") return;
        lease = data.lease;
        at = data.offset + new TextEncoder().encode(data.text).length;
        append(place, data.text);
      }
    } catch {
      // As above: the log is read on from where it stopped.
    }
    await pause(Math.min(5000, 300 * 2 ** attempt));
  }
}

function append(place, text) {
  const atEnd = place.scrollHeight - place.scrollTop - place.clientHeight < 40;
  place.append(text);
  while (place.textContent.length > LOG_KEPT && place.firstChild !== place.lastChild) place.firstChild.remove();
  if (atEnd) place.scrollTop = place.scrollHeight;
}

function heard(message) {
  if (message.job === job && ["stage", "end"].includes(message.what)) soon();
  if (message.what === "paying") showAway();
}

// ---- acting --------------------------------------------------------------------------------

async function act({ target }) {
  const button = target.closest?.("button[data-action]");
  if (!button) return;
  wrong("");
  button.disabled = true;
  try {
    await ACTIONS[button.dataset.action]?.(button);
  } catch (error) {
    button.disabled = false;
    wrong(error.remedy ? `${error.message}. ${error.remedy}` : error.message);
  }
}

const ACTIONS = {
  /** The provider stops it and sends the last receipt; the payer answers it and ends the channel. */
  stop: async (button) => {
    await post(`/v1/jobs/${job}/stop`);
    button.blur();
    await refresh();
  },
  resume: async () => {
    const key = await newKey();
    const id = toHex(key.verifyKey);
    const before = (await vault.all()).find((book) => book.job === job);
    if (!before) throw new Error("this job was posted from another browser: resume it there");
    await vault.keep({ id, privateKey: key.privateKey, state: "NEW", account: before.account, job, spec: before.spec });
    await post(`/v1/jobs/${job}/resume`, { session_vk: id });
    location.reload();
  },
  download: async (button) => {
    const { sha256, path } = button.dataset;
    const answer = await fetch(`/v1/jobs/${job}/outputs/${sha256}`, { headers: { Authorization: `Bearer ${token()}` } });
    if (!answer.ok) throw new Error(`the output cannot be had now (${answer.status})`);
    const bytes = await answer.arrayBuffer();
    const hash = toHex(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)));
    if (hash !== sha256) throw new Error("the output is not what the provider announced: its hash differs");
    const link = make("a", { href: URL.createObjectURL(new Blob([bytes])), download: path.split("/").pop() });
    link.click();
    URL.revokeObjectURL(link.href);
    button.disabled = false;
  },
};

async function showAway() {
  const book = await bookOf(job);
  const section = document.getElementById("away");
  const running = book && !book.endSent && !["ENDED", "ENDING"].includes(state);
  section.hidden = !running;
  if (!running) return;
  const lease = Object.values(book.leases)[0];
  const terms = readTerms(lease.terms);
  const select = document.getElementById("ahead-for");
  const amount = () => {
    const most = lease.cap - lease.approved;
    const wanted = owed(unitMs(Number(select.value), terms.units_milli), terms.rate_micro);
    document.getElementById("ahead-amount").textContent = ada(wanted < most ? wanted : most);
  };
  amount();
  select.onchange = amount;
  document.getElementById("ahead").onclick = () => order({ do: "ahead", id: book.id, lease: terms.lease, ms: Number(select.value) });
}
