// A job's specification from the form, in the form in which it is posted and hashed.

import { poolKeyIn, REMEDY } from "../crypto/pool_keys.js";
import { control } from "../ui/dom.js";
import { parseAda, parseDuration } from "../money/units.js";

/** @import { FileIn, GpuNeed, JobSpec } from "../money/jobspec.js" */

const RETRIES = 3;

/**
 * MiB that a device sold with *gb* shows at least: drivers and ECC keep up to 7 % (as in job files).
 * @type {(gb: number) => number}
 */
const nominalLeast = (gb) => Math.floor((gb * 1024 * 93) / 100);

/** What a form says is impossible; *field* is its name, or the element itself. */
export class FormFault extends Error {
  /**
   * @param {string | Element} field
   * @param {string} message
   */
  constructor(field, message) {
    super(message);
    this.field = field;
  }
}

/**
 * Words of a command line: blanks separate, single and double quotes keep together.
 * @param {string} line
 */
export function words(line) {
  /** @type {string[]} */
  const found = [];
  let rest = line;
  const pattern = /\s*((?:"(?:[^"\\]|\\.)*"|'[^']*'|\\.|[^\s"'\\])+)/gsy;
  for (;;) {
    const match = pattern.exec(rest);
    if (!match) break;
    found.push((match[1] ?? "").replace(/"((?:[^"\\]|\\.)*)"|'([^']*)'|\\(.)/gs, (_, double, single, one) =>
      double !== undefined ? double.replace(/\\(["\\$`])/g, "$1") : single ?? one));
    rest = rest.slice(pattern.lastIndex);
    pattern.lastIndex = 0;
  }
  if (rest.trim()) throw new FormFault("command", "a quote in the command is not closed");
  return found;
}

/** @type {(text: string) => {[name: string]: string}} */
function environment(text) {
  const pairs = text.split("\n").filter((line) => line.trim());
  return Object.fromEntries(pairs.map((line) => {
    const at = line.indexOf("=");
    if (at < 1) throw new FormFault("env", `${line.trim()} is not NAME=value`);
    return [line.slice(0, at).trim(), line.slice(at + 1)];
  }));
}

/** @type {(form: HTMLFormElement, name: string, least?: number) => number} */
function whole(form, name, least = 0) {
  const text = form[name].value.trim();
  if (!/^\d{1,9}$/.test(text) || Number(text) < least) throw new FormFault(name, `${name} is a whole number, ${least} or more`);
  return Number(text);
}

/** @type {(text: string) => string[]} */
const list = (text) => text.split(/[\s,]+/).filter(Boolean);

/**
 * What the job may connect to, in its own key; a job that asks for nothing has none.
 * @type {(form: HTMLFormElement) => {egress?: string | string[]}}
 */
function egress(form) {
  if (form.egress.value !== "list") return form.egress.value === "open" ? { egress: "open" } : {};
  const targets = list(form.reach.value);
  if (!targets.length || !targets.every((one) => /^[a-z0-9.-]+:[1-9]\d{0,4}$/i.test(one))) throw new FormFault("reach", "name hosts with their ports, such as pypi.org:443");
  return { egress: targets };
}

/**
 * The image; none where the host's own programs are asked for.
 * @type {(form: HTMLFormElement) => string}
 */
function imageOf(form) {
  const plain = form.isolation.value === "process";
  const image = plain ? "" : form.image.value.trim();
  if (!plain && !image) throw new FormFault("image", "a job needs an image; only isolation: process has none");
  if (plain && !form.command.value.trim()) throw new FormFault("command", "a process needs a command");
  return image;
}

/** @type {(form: HTMLFormElement) => GpuNeed} */
function gpuOf(form) {
  const count = whole(form, "count", 1);
  const vram = form.vram.value.trim() ? nominalLeast(whole(form, "vram")) : 0;
  return { models: form.model.value ? [form.model.value] : [], count: { least: count, most: count }, vram: { least: vram }, share: 1000 };
}

/**
 * The most that one device, or core, may cost: ADA an hour as people say it, micro-lovelace a second as jobs do.
 * @type {(form: HTMLFormElement) => number}
 */
function capOf(form) {
  const text = form.hourly.value.trim();
  if (!text) return 0;
  const micro = Number((BigInt(parseAda(text) ?? 0) * 1_000_000n) / 3600n);
  if (!micro || !Number.isSafeInteger(micro)) throw new FormFault("hourly", "the most that a device may cost is ADA an hour, such as 5 or 0.25");
  return micro;
}

/** @type {(field: string, where: string, value: string) => void} */
function keepsPoolKeys(field, where, value) {
  const held = poolKeyIn(value);
  if (held) throw new FormFault(field, `${where} holds ${held}: ${REMEDY}`);
}

/**
 * The specification; FormFault names the first field that says something impossible. *along*: names of
 * secrets, and files by the hash of their bytes.
 * @param {HTMLFormElement} form
 * @param {{[image: string]: string | undefined}} digests
 * @param {{secrets: string[], files: FileIn[]}} along
 * @returns {JobSpec}
 */
export function readForm(form, digests, along = { secrets: [], files: [] }) {
  const budget = parseAda(form.budget.value);
  if (!budget) throw new FormFault("budget", "the budget is an amount of ADA, such as 10 or 2.5");
  const duration = parseDuration(form.duration.value);
  if (!duration) throw new FormFault("duration", "the longest time is written as 90s, 15m, 6h or 2d");
  const image = imageOf(form);
  const cap = capOf(form);
  const cores = form.model.value === "-";
  const env = environment(form.env.value);
  const command = words(form.command.value.trim());
  for (const [name, value] of Object.entries(env)) keepsPoolKeys("env", name, value);
  for (const word of command) keepsPoolKeys("command", "the command", word);
  return {
    version: 2,
    name: control(form, "name").value.trim() || "job",
    kind: "job",
    image: digests[image] ?? image,
    command,
    resources: [{
      cpu: { least: whole(form, "cores", 1) * 1000 }, memory: { least: whole(form, "memory") * 1024 },
      disk: { least: whole(form, "disk") * 1024 }, ...(cores ? {} : { gpu: gpuOf(form) }),
    }],
    env,
    secrets: along.secrets,
    files: along.files,
    ports: [],
    ...egress(form),
    outputs: list(form.outputs.value),
    placement: {
      regions: list(form.region.value), isolation: form.isolation.value, min_trust: 0, labels: {},
      providers: list(form.provider.value), not_providers: [],
    },
    price: { max_gpu_rate: cores ? 0 : cap, max_core_rate: cores ? cap : 0, budget },
    policy: {
      max_duration_ms: duration, retry_on: form.retry.checked ? ["provider_lost"] : [], retry_max: form.retry.checked ? RETRIES : 0, idle_gpu_below: 0, idle_for_ms: 0,
      queue: form.queue.checked, priority: 0,
    },
  };
}
