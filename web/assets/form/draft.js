// The job that the form is about to post: what it was filled in with, and what was changed since.

import { Problem, post, token } from "../net/api.js";
import { byId, hit } from "../ui/dom.js";
import { make } from "../ui/live.js";
import { asTyped, fill } from "./fill.js";
import { beyond, over } from "./merge.js";
import { readForm } from "./spec.js";

/**
 * @import { JobSpec } from "../money/jobspec.js"
 * @import { Along, Digests } from "./fill.js"
 */

const FILE_MOST = 128 * 1024; // as the market reads at most

export class Draft {
  /**
   * @param {HTMLFormElement} form
   * @param {Along} along
   * @param {Digests} digests
   */
  constructor(form, along, digests) {
    this.form = form;
    this.along = along;
    this.digests = digests;
    /** @type {{was: JobSpec, base: JobSpec} | null} */
    this.filled = null;
  }

  /** @returns {JobSpec} */
  read() {
    return readForm(this.form, this.digests, { secrets: this.along.secrets.names(), files: this.along.files.spec() });
  }

  /** What would be posted now; FormFault names the first field that says something impossible. */
  spec() {
    const now = this.read();
    return this.filled ? over(now, this.filled.was, this.filled.base) : now;
  }

  /**
   * Fills the form in with *base*; *spent*: what a job that lost its provider has cost already comes
   * off the budget.
   * @param {JobSpec} base
   * @param {number} [spent] lovelace
   */
  take(base, spent = 0) {
    if (base.gang) throw new Error("a gang is posted by `tally job run`: a page pays one lease at a time");
    this.filled = null;
    fill(this.form, this.along, base, this.digests);
    const was = this.read();
    this.filled = { was, base };
    if (spent) this.form.budget.value = asTyped(Math.max(base.price.budget - spent, 0));
    this.tell(beyond(was, base));
  }

  /** @param {string[]} keys that have no field here */
  tell(keys) {
    const place = byId("beyond");
    place.hidden = !keys.length;
    place.replaceChildren(`Kept as it was given, though this form has no field for it: ${keys.join(", ")}. `,
      make("button", { type: "button", class: "plain small", onclick: () => { this.filled = null; place.hidden = true; this.form.dispatchEvent(new Event("input")); } }, "Leave it out"));
  }
}

/**
 * The controls above the form. *changed*: the form says something else now; *refuse* says what is wrong.
 * @type {(form: HTMLFormElement, draft: Draft, changed: () => void, refuse: (error: unknown) => void) => void}
 */
export function startFrom(form, draft, changed, refuse) {
  const attempt = async (/** @type {() => Promise<void> | void} */ work) => {
    refuse("");
    try {
      await work();
      changed();
    } catch (error) {
      refuse(error);
    }
  };
  form.preset.addEventListener("change", () => attempt(() => {
    const { spec: chosen, whole } = form.preset.selectedOptions[0]?.dataset ?? {};
    if (!chosen) return;
    /** @type {JobSpec} */
    const spec = JSON.parse(chosen);
    const image = whole === undefined ? draft.digests[spec.image] ?? (form.image.value || spec.image) : spec.image; // an image that is here
    draft.take({ ...spec, image });
  }));
  form.preset.value = new URLSearchParams(location.search).get("start") ?? form.preset.value;
  if (form.preset.value) form.preset.dispatchEvent(new Event("change"));
  form.jobfile.addEventListener("change", () => attempt(async () => {
    const [file] = form.jobfile.files;
    form.jobfile.value = "";
    form.preset.value = "";
    if (file) draft.take((await readFile(file)).spec);
  }));
  form.addEventListener("click", (event) => {
    if (hit(event, "#to-file")) attempt(() => saveAs(draft.spec()));
  });
}

/**
 * By the market's own parser, which names every mistake at once.
 * @param {File} file
 * @returns {Promise<{spec: JobSpec}>}
 */
async function readFile(file) {
  if (file.size > FILE_MOST) throw new Error(`${file.name} is larger than any job file`);
  const headers = { Accept: "application/json", Authorization: `Bearer ${token()}`, "Content-Type": "application/yaml" }; // JSON is YAML, too
  const answer = await fetch("/v1/jobfiles", { method: "POST", headers, body: await file.text() });
  if (!answer.ok) throw new Problem(await answer.json().catch(() => ({})), answer.status);
  return answer.json();
}

async function saveAs(/** @type {JobSpec} */ spec) {
  /** @type {{text: string}} */
  const { text } = await post("/v1/jobfiles", { spec });
  const link = make("a", { href: URL.createObjectURL(new Blob([text])), download: `${spec.name.replace(/[^\w-]+/g, "-")}.yaml` });
  link.click();
  URL.revokeObjectURL(link.href);
}
