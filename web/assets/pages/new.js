// The job form: its quote is live, and posting it makes the session key of its channel.

import { reusable } from "../wallet/agree.js";
import { Problem, get, post } from "../net/api.js";
import { Files, Secrets } from "../form/attach.js";
import { toHex } from "../crypto/bytes.js";
import { newKey } from "../crypto/ed25519.js";
import { byId, control, the } from "../ui/dom.js";
import { expectedRow, feeRows, routedRow, startRow } from "../ui/fees.js";
import { inWords, make, wrong } from "../ui/live.js";
import { lock } from "../crypto/seal.js";
import { named } from "../money/jobspec.js";
import { units } from "../money/kinds.js";
import { Draft, startFrom } from "../form/draft.js";
import { FormFault } from "../form/spec.js";
import { amount, fiat, price as perHour } from "../ui/amounts.js";
import { about, duration, rate, short } from "../money/units.js";
import * as vault from "../money/vault.js";

/**
 * @import { Estimate, Explained, JobView, NoMatch } from "../net/answers.js"
 * @import { Reader } from "../ui/dom.js"
 * @import { JobSpec } from "../money/jobspec.js"
 * @import { Along } from "../form/fill.js"
 */

const RESERVE_ABOUT = 1_670_000; // what a channel keeps, and what opening one costs: the quote says both exactly
const SETTLE_MS = 350; // after the last key
const CHANNELS_MOST = 100; // as many as a job may name

export async function start(/** @type {Reader} */ { account }) {
  const form = the("new", HTMLFormElement);
  const digests = Object.fromEntries([...the("images", HTMLDataListElement).options].map((o) => [o.value, o.dataset.digest]));
  let timer = 0;
  let estimate = () => {};
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(() => estimate(), SETTLE_MS);
  };
  const along = { secrets: new Secrets(byId("secrets"), soon), files: new Files(byId("files"), soon) };
  const draft = new Draft(form, along, digests);
  byId("add-secret").onclick = () => along.secrets.add();
  form.files.addEventListener("change", async () => {
    wrong("");
    await along.files.take(form.files.files).catch((error) => refuse(form, error));
    form.files.value = "";
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit(form, draft, along, account);
  });
  await fillIn(form, draft);
  const reach = () => { byId("reach").hidden = form.egress.value !== "list"; };
  form.egress.addEventListener("change", reach);
  reach();
  const plain = () => { form.image.disabled = form.isolation.value === "process"; };
  form.isolation.addEventListener("change", plain);
  plain();
  const cores = () => { for (const field of [form.count, form.vram]) field.disabled = form.model.value === "-"; };
  form.model.addEventListener("change", cores);
  cores();
  startFrom(form, draft, () => {
    reach();
    plain();
    cores();
    soon();
  }, (error) => refuse(form, error));
  if (form.files.files.length) form.files.dispatchEvent(new Event("change")); // chosen before this page was ready
  if (!account) return;
  the("post", HTMLButtonElement).disabled = false;
  estimate = estimator(form, draft);
  form.addEventListener("input", soon);
  estimate();
}

/** @type {(form: HTMLFormElement, draft: Draft) => Promise<void>} */
async function fillIn(form, draft) {
  const asked = new URLSearchParams(location.search);
  if (asked.get("provider")) form.provider.value = asked.get("provider");
  const model = asked.get("model");
  if (model) form.model.value = [...form.model.options].find((o) => o.value.includes(model))?.value ?? "";
  for (const name of ["count", "vram", "region", "hourly"]) if (asked.get(name)) form[name].value = asked.get(name);
  if (asked.get("queue")) form.queue.checked = true;
  const again = asked.get("again");
  if (again) {
    /** @type {JobView | null} */
    const job = await get(`/v1/jobs/${encodeURIComponent(again)}`).catch(() => null);
    if (job) draft.take(named(job.spec), job.reason === "PROVIDER_LOST" ? job.spent : 0);
  }
}

/** @type {(form: HTMLFormElement, fault: unknown) => HTMLElement | null} */
function mark(form, fault) {
  for (const el of form.elements) el.removeAttribute("aria-invalid");
  const field = fault instanceof FormFault && (typeof fault.field === "string" ? control(form, fault.field) : fault.field);
  if (!(field instanceof HTMLElement)) return null;
  field.setAttribute("aria-invalid", "true");
  return field;
}

/**
 * Say it, mark its field, and go there.
 * @type {(form: HTMLFormElement, error: unknown) => void}
 */
function refuse(form, error) {
  const field = mark(form, error);
  wrong(error ? inWords(error) : "");
  /** @type {unknown} */
  const problems = error instanceof Problem ? error.fields.problems : undefined; // of a job file: all of them
  if (Array.isArray(problems) && problems.length > 1) byId("wrong").append(make("ul", {}, ...problems.map((one) => make("li", {}, String(one)))));
  field?.focus();
}

/** @type {(form: HTMLFormElement, draft: Draft) => () => Promise<void>} */
function estimator(form, draft) {
  /** @type {AbortController | undefined} */
  let asking;
  return async () => {
    asking?.abort();
    asking = new AbortController();
    const place = byId("estimate");
    try {
      const spec = draft.spec();
      mark(form, null);
      /** @type {Explained} */
      const answer = await post("/v1/explain", { spec }, { signal: asking.signal });
      place.replaceChildren(...(answer.matches ? price(answer.quote, spec) : reasons(answer.explain)));
    } catch (error) {
      if (error instanceof DOMException && error.name === "AbortError") return;
      mark(form, error);
      place.replaceChildren(make("p", { class: "hint" }, inWords(error)));
    }
  };
}

/** @type {(name: string, ...value: (Node | string)[]) => HTMLElement} */
const fact = (name, ...value) => make("div", {}, make("dt", {}, name), make("dd", {}, ...value));
const simulated = () => make("span", { class: "badge simulated" }, "SIMULATED");

/** @type {(quote: Estimate, spec: JobSpec) => HTMLElement[]} */
function price(quote, spec) {
  const fee = quote.fees?.consumer ?? 0;
  const perSecond = (BigInt(quote.rate_micro) * BigInt(quote.units_milli)) / 1000n;
  return [
    make("p", { class: "price" }, perHour(perSecond), make("small", {}, `${rate(quote.rate_micro)} × ${units(quote.units_milli, quote.resource)}`)),
    make("dl", { class: "bill" },
      fact("Longest", duration(spec.policy.max_duration_ms)),
      fact("Device", quote.device.replaceAll("SIMULATED ", ""), " ", quote.simulated ? simulated() : ""),
      fact("Provider", make("a", { href: `/providers/${quote.provider}`, class: "key" }, short(quote.provider))),
      make("div", { class: "total" }, make("dt", {}, "At most"), make("dd", {}, amount(quote.ceiling), " ", fiat(quote.ceiling))),
      fact("Leaves your wallet now", amount(BigInt(quote.ceiling) + BigInt(RESERVE_ABOUT + fee)), make("small", {}, ` about: with a reserve of ${about(RESERVE_ABOUT)}${fee ? ` and a fee of ${about(fee)}` : ""}`)),
      fact("Comes back", "the reserve, and what the job does not use"),
      startRow(quote.allowance ?? 0),
      expectedRow(quote.expected_start),
      ...feeRows(quote.fees, quote.minimum ?? 0),
      routedRow(quote.routed)),
    quote.alternatives.length
      ? make("details", {}, make("summary", {}, "Why not another"), make("ul", {}, ...quote.alternatives.map((other) =>
        make("li", {}, short(other.provider), " at ", perHour(other.rate_micro), `: ${other.why}`))))
      : make("p", { class: "hint" }, "No other offer would do."),
  ];
}

const hosts = (/** @type {number} */ count) => `${count} host${count === 1 ? "" : "s"}`;

function reasons(/** @type {NoMatch} */ no) {
  return [
    make("p", { class: "notice" }, no.text),
    make("ul", { class: "reasons", "aria-label": "What rules hosts out" }, ...Object.entries(no.reasons).map(([name, count]) =>
      make("li", {}, make("span", {}, (no.words[name] ?? name).replaceAll("_", " ").toLowerCase()), make("span", {}, `${count} of ${hosts(no.hosts)}`)))),
    no.relaxations.length ? make("h3", {}, "It would match with") : make("p", { class: "hint" }, "No single change would match a host that is listed now. The job can wait in the queue."),
    make("ul", { class: "relax" }, ...no.relaxations.map((way) => make("li", {}, make("b", {}, way.change), make("span", {}, `${hosts(way.hosts)}, from `, perHour(way.rate_micro_per_s))))),
  ];
}

/** @type {(form: HTMLFormElement, draft: Draft, along: Along, account: string) => Promise<void>} */
async function submit(form, draft, along, account) {
  const button = the("post", HTMLButtonElement);
  wrong("");
  button.disabled = true;
  button.setAttribute("aria-busy", "true");
  try {
    const spec = draft.spec();
    const secrets = along.secrets.values();
    await along.files.upload();
    const key = await newKey();
    const id = toHex(key.verifyKey);
    const channels = (await reusable(vault, account)).map((book) => book.id).slice(0, CHANNELS_MOST);
    const body = { spec, session_vk: id, consumer_vkh: account, channels };
    /** @type {JobView} */
    const job = await post("/v1/jobs", body, { once: id });
    const locked = spec.secrets.length ? await lock(secrets) : null;
    await vault.keep({ id, privateKey: key.privateKey, state: "NEW", made: Date.now(), account, job: job.id, spec, locked });
    location.assign(`/jobs/${job.id}`);
  } catch (error) {
    button.disabled = false;
    button.removeAttribute("aria-busy");
    refuse(form, error);
  }
}
