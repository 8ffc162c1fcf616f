// A job in the form: one that ran, one of a job file, or a preset (draft.js keeps what has no field).

import { ada } from "../money/units.js";
import { control } from "../ui/dom.js";

/**
 * @import { JobSpec } from "../money/jobspec.js"
 * @import { Files, Secrets } from "./attach.js"
 */

/** @typedef {{secrets: Secrets, files: Files}} Along */
/** @typedef {{[image: string]: string | undefined}} Digests by a local image's name */

const HOUR_S = 3600n;
const MICRO = 1_000_000n;

/** @type {(lovelace: number | bigint) => string} */
export const asTyped = (lovelace) => ada(lovelace).replace("₳", "").replaceAll("\u202f", "");
/** @type {(ms: number) => string} */
const asDuration = (ms) => {
  const [name, size] = /** @type {[string, number][]} */ ([["d", 86_400_000], ["h", 3_600_000], ["m", 60_000], ["s", 1000]]).find(([, one]) => ms % one === 0) ?? ["s", 1000];
  return `${Math.max(1, Math.floor(ms / size))}${name}`;
};
/** @type {(word: string) => string} */
const quoted = (word) => (word && !/[\s"'\\]/.test(word) ? word : `"${word.replace(/(["\\$`])/g, "\\$1")}"`);

/**
 * Fills the form in with *spec*. *images*: by which name a digest is known here.
 * @type {(form: HTMLFormElement, along: Along, spec: JobSpec, images: Digests) => void}
 */
export function fill(form, along, spec, images) {
  const block = spec.resources[0];
  if (!block) throw new Error("this job asks for nothing");
  const { cpu, memory, disk, gpu } = block;
  control(form, "name").value = spec.name;
  form.image.value = Object.entries(images).find(([, digest]) => digest === spec.image)?.[0] ?? spec.image;
  form.command.value = spec.command.map(quoted).join(" ");
  form.env.value = Object.entries(spec.env).map(([k, v]) => `${k}=${v}`).join("\n");
  form.cores.value = Math.max(1, Math.ceil(cpu.least / 1000));
  form.memory.value = Math.ceil(memory.least / 1024);
  form.disk.value = Math.ceil(disk.least / 1024);
  choose(form.model, gpu ? gpu.models[0] ?? "" : "-");
  form.count.value = gpu?.count.least ?? 1;
  form.vram.value = gpu?.vram.least ? Math.round((gpu.vram.least * 100) / 93 / 1024) : "";
  along.secrets.clear();
  for (const name of spec.secrets) along.secrets.add(name);
  along.files.clear();
  for (const { dst, sha256, size } of spec.files) along.files.row({ dst, sha256, size });
  form.outputs.value = spec.outputs.join(" ");
  form.region.value = spec.placement.regions.join(" ");
  form.provider.value = spec.placement.providers.join(" ");
  limits(form, spec);
}

/** @type {(form: HTMLFormElement, spec: JobSpec) => void} */
function limits(form, spec) {
  form.budget.value = asTyped(spec.price.budget);
  const cap = spec.resources[0]?.gpu ? spec.price.max_gpu_rate : spec.price.max_core_rate;
  form.hourly.value = cap ? asTyped((BigInt(cap) * HOUR_S) / MICRO) : "";
  form.duration.value = asDuration(spec.policy.max_duration_ms);
  form.queue.checked = spec.policy.queue;
  form.retry.checked = spec.policy.retry_max > 0;
  form.isolation.value = spec.placement.isolation;
  form.egress.value = Array.isArray(spec.egress) ? "list" : spec.egress ?? "none";
  form.reach.value = Array.isArray(spec.egress) ? spec.egress.join(" ") : "";
}

/** One that nobody offers now is asked for all the same: *select* gets it. */
function choose(/** @type {HTMLSelectElement} */ select, /** @type {string} */ value) {
  if (![...select.options].some((one) => one.value === value)) select.add(new Option(value, value));
  select.value = value;
}
