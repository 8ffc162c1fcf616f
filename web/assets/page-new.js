// The job form: its quote is live, and posting it makes the session key of its channel.

import { get, post, Problem } from "./api.js";
import { toHex } from "./bytes.js";
import { newKey } from "./crypto.js";
import { make, wrong } from "./live.js";
import { FormFault, readForm } from "./spec.js";
import { ada, duration, rate, short } from "./units.js";
import * as vault from "./vault.js";

const SETTLE_MS = 350; // after the last key

export async function start({ account }) {
  const form = document.getElementById("new");
  const digests = Object.fromEntries([...document.querySelectorAll("#images option")].map((o) => [o.value, o.dataset.digest]));
  await fillIn(form);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit(form, digests, account);
  });
  if (!account) return;
  const estimate = estimator(form, digests);
  let timer;
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(estimate, SETTLE_MS);
  });
  estimate();
}

async function fillIn(form) {
  const asked = new URLSearchParams(location.search);
  if (asked.get("provider")) form.provider.value = asked.get("provider");
  const model = asked.get("model");
  if (model) form.model.value = [...form.model.options].find((o) => o.value.includes(model))?.value ?? "";
  if (asked.get("again")) {
    const { spec } = await get(`/v1/jobs/${encodeURIComponent(asked.get("again"))}`).catch(() => ({}));
    if (spec) repeat(form, spec);
  }
}

function repeat(form, spec) {
  const [cpu, memory, disk, gpu] = spec.resources[0];
  form.name.value = spec.name;
  form.image.value = spec.image;
  form.command.value = spec.command.map((word) => (/[\s"'\\]/.test(word) ? `"${word.replace(/(["\\$`])/g, "\\$1")}"` : word)).join(" ");
  form.env.value = Object.entries(spec.env).map(([k, v]) => `${k}=${v}`).join("\n");
  form.cores.value = cpu[0] / 1000;
  form.memory.value = Math.ceil(memory[0] / 1024);
  form.disk.value = Math.ceil(disk[0] / 1024);
  form.model.value = gpu === null ? "-" : gpu[0][0] ?? "";
  if (gpu) form.count.value = gpu[1][0];
  form.budget.value = ada(spec.price[2]).replace(" ADA", "").replaceAll("\u202f", "");
  form.isolation.value = spec.placement.isolation;
}

function mark(form, fault) {
  for (const el of form.elements) el.removeAttribute("aria-invalid");
  if (fault instanceof FormFault && form[fault.field]) form[fault.field].setAttribute("aria-invalid", "true");
}

function estimator(form, digests) {
  let asking;
  return async () => {
    asking?.abort();
    asking = new AbortController();
    const place = document.getElementById("estimate");
    try {
      const spec = readForm(form, digests);
      mark(form, null);
      const answer = await post("/v1/explain", { spec }, { signal: asking.signal });
      place.replaceChildren(...(answer.matches ? price(answer.quote, spec) : reasons(answer.explain)));
    } catch (error) {
      if (error.name === "AbortError") return;
      mark(form, error);
      place.replaceChildren(make("p", { class: "hint" }, error.message));
    }
  };
}

const fact = (name, ...value) => make("div", {}, make("dt", {}, name), make("dd", {}, ...value));
const simulated = () => make("span", { class: "badge simulated" }, "SIMULATED");

function price(quote, spec) {
  const perSecond = (BigInt(quote.rate_micro) * BigInt(quote.units_milli)) / 1000n;
  return [
    make("dl", { class: "facts" },
      fact("Price", rate(quote.rate_micro)),
      fact("For your share", `${ada((perSecond * 3600n) / 1_000_000n)} an hour`),
      fact("At most", ada(quote.ceiling)),
      fact("Longest", duration(spec.policy.max_duration_ms)),
      fact("Device", quote.device.replaceAll("SIMULATED ", ""), " ", quote.simulated ? simulated() : ""),
      fact("Provider", make("a", { href: `/providers/${quote.provider}`, class: "key" }, short(quote.provider)))),
    quote.alternatives.length
      ? make("details", {}, make("summary", {}, "Why not another"), make("ul", {}, ...quote.alternatives.map((other) =>
        make("li", {}, `${short(other.provider)} at ${rate(other.rate_micro)}: ${other.why}`))))
      : make("p", { class: "hint" }, "No other offer would do."),
  ];
}

function reasons(no) {
  return [
    make("p", { class: "notice" }, no.text),
    no.relaxations.length ? make("p", {}, "It would match if you:") : make("p", { class: "hint" }, "Nothing near would match."),
    make("ul", {}, ...no.relaxations.map((way) => make("li", {}, `${way.change}: ${way.hosts} host${way.hosts === 1 ? "" : "s"}, ${rate(way.rate_micro_per_s)}`))),
  ];
}

async function submit(form, digests, account) {
  const button = document.getElementById("post");
  wrong("");
  button.disabled = true;
  try {
    const spec = readForm(form, digests);
    const key = await newKey();
    const id = toHex(key.verifyKey);
    const body = { spec, session_vk: id, consumer_vkh: account, channels: [] };
    const job = await post("/v1/jobs", body, { once: id });
    await vault.keep({ id, privateKey: key.privateKey, state: "NEW", account, job: job.id, spec });
    location.assign(`/jobs/${job.id}`);
  } catch (error) {
    button.disabled = false;
    mark(form, error);
    wrong(error instanceof Problem && error.remedy ? `${error.message}. ${error.remedy}` : error.message);
    if (error instanceof FormFault) form[error.field]?.focus();
  }
}
