// What goes along with a job from this browser: files, named by the hash of their bytes, and secrets.

import { Problem, token } from "../net/api.js";
import { toHex } from "../crypto/bytes.js";
import { poolKeyIn, REMEDY } from "../crypto/pool_keys.js";
import { make } from "../ui/live.js";
import { FormFault } from "./spec.js";
import { size } from "../money/units.js";

/** @import { FileIn } from "../money/jobspec.js" */

/**
 * A file that goes along; one without *file* was uploaded before.
 * @typedef {object} Entry
 * @property {string} dst
 * @property {string} sha256
 * @property {number} size
 * @property {File} [file]
 * @property {boolean} [sent]
 */

const FILE_MOST = 256 * 2 ** 20; // read into memory to be hashed; the command line takes more
const MODE = 0o644;
const NAME = /^[A-Za-z_][A-Za-z0-9_]{0,127}$/; // the adapter's rule
const RESERVED = /^(LD_|NVIDIA_|CUDA_MPS_|DYLD_)/; // set by the adapter only

/** @type {(what: string, remove: () => void) => HTMLButtonElement} */
const removeButton = (what, remove) => make("button", { type: "button", class: "quiet icon-only", "aria-label": `Remove ${what}`, onclick: remove }, "✕");

/** Rows of a name and a value that is never shown, stored in clear, or sent unsealed. */
export class Secrets {
  /**
   * @param {HTMLElement} list
   * @param {() => void} changed
   */
  constructor(list, changed) {
    this.list = list;
    this.changed = changed;
    /** @type {Map<HTMLElement, [name: HTMLInputElement, value: HTMLInputElement]>} */
    this.inputs = new Map();
  }

  add(name = "") {
    const called = make("input", { name: "secret-name", class: "long", value: name, placeholder: "HF_TOKEN", maxlength: 128, autocomplete: "off", spellcheck: "false" });
    const value = make("input", { name: "secret-value", type: "password", autocomplete: "off" });
    const row = make("li", {}, make("label", {}, "Name", called), make("label", {}, "Value", value), removeButton("this secret", () => this.drop(row)));
    this.inputs.set(row, [called, value]);
    this.list.append(row);
    (name ? value : called).focus();
    this.changed();
  }

  /** @param {HTMLElement} row */
  drop(row) {
    this.inputs.delete(row);
    row.remove();
    this.changed();
  }

  clear() {
    for (const row of [...this.inputs.keys()]) this.drop(row);
  }

  rows() {
    return [...this.inputs.values()].filter(([name, value]) => name.value.trim() || value.value);
  }

  /** Their names; FormFault for one that no adapter takes. */
  names() {
    /** @type {string[]} */
    const names = [];
    for (const [input] of this.rows()) {
      const name = input.value.trim();
      const fault = !NAME.test(name) ? "is letters, digits and underscores, such as HF_TOKEN" : RESERVED.test(name) ? "is a name that only the provider sets" : names.includes(name) ? "is there twice" : "";
      if (fault) throw new FormFault(input, `the secret ${name || "without a name"} ${fault}`);
      names.push(name);
    }
    return names;
  }

  /** Values by name, once the job is posted; FormFault for an empty one. */
  values() {
    this.names();
    const empty = this.rows().find(([, value]) => !value.value);
    if (empty) throw new FormFault(empty[1], `the secret ${empty[0].value.trim()} has no value`);
    for (const [name, value] of this.rows()) {
      const held = poolKeyIn(value.value);
      if (held) throw new FormFault(value, `the secret ${name.value.trim()} holds ${held}: ${REMEDY}`);
    }
    return Object.fromEntries(this.rows().map(([name, value]) => [name.value.trim(), value.value]));
  }
}

/** Files of the form: hashed when they are chosen, uploaded when the job is posted. */
export class Files {
  /**
   * @param {HTMLElement} list
   * @param {() => void} changed
   */
  constructor(list, changed) {
    this.list = list;
    this.changed = changed;
    /** @type {Map<HTMLElement, Entry & {place: HTMLInputElement}>} */
    this.kept = new Map();
  }

  /** @param {Iterable<File>} chosen */
  async take(chosen) {
    for (const file of chosen) {
      if (file.size > FILE_MOST) throw new FormFault("files", `${file.name} has ${size(file.size)}; from a browser a file has at most ${size(FILE_MOST)}: tally job run takes more`);
      const bytes = new Uint8Array(await file.arrayBuffer());
      const held = poolKeyIn(bytes);
      if (held) throw new FormFault("files", `${file.name} holds ${held}: ${REMEDY}`);
      const hash = await crypto.subtle.digest("SHA-256", bytes);
      this.row({ dst: file.name, sha256: toHex(new Uint8Array(hash)), size: file.size, file });
    }
    this.changed();
  }

  /**
   * A file that is chosen now, or one that an earlier job of this account took along.
   * @param {Entry} entry
   */
  row(entry) {
    const place = make("input", { name: "file-path", class: "long", value: entry.dst, maxlength: 1000, autocomplete: "off", spellcheck: "false" });
    const said = make("small", {}, `${size(entry.size)}, sha256 ${entry.sha256.slice(0, 12)}…${entry.file ? "" : ", uploaded before"}`);
    const row = make("li", { class: "file" }, make("label", {}, "Path under /workspace", place), removeButton(entry.dst, () => {
      this.kept.delete(row);
      row.remove();
      this.changed();
    }), said);
    this.kept.set(row, { ...entry, place });
    this.list.append(row);
  }

  clear() {
    for (const row of this.kept.keys()) row.remove();
    this.kept.clear();
  }

  /** As a job's specification names them; FormFault for a path outside of the workspace. */
  spec() {
    /** @type {FileIn[]} */
    const files = [];
    for (const { place, sha256, size: bytes } of this.kept.values()) {
      const dst = place.value.trim();
      const inner = dst.replace(/^\/workspace\//, "");
      const fault = !inner || inner.startsWith("/") || inner.split("/").includes("..") ? "does not lie under /workspace" : files.some((other) => other.dst === dst) ? "is there twice" : "";
      if (fault) throw new FormFault(place, `${dst || "a file without a path"} ${fault}`);
      files.push({ dst, sha256, size: bytes, mode: MODE });
    }
    return files;
  }

  /** All bytes to the market, one after another, with progress. */
  async upload() {
    for (const [row, entry] of this.kept) {
      if (!entry.file || entry.sent) continue;
      const bar = make("progress", { max: entry.size || 1, value: 0, "aria-label": `Upload of ${entry.file.name}` });
      row.append(bar);
      try {
        await put(`/v1/blobs/${entry.sha256}`, entry.file, (sent) => (bar.value = sent));
        entry.sent = true;
      } finally {
        bar.remove();
      }
    }
  }
}

/**
 * fetch tells nothing of an upload's progress.
 * @type {(path: string, file: File, progress: (sent: number) => void) => Promise<void>}
 */
function put(path, file, progress) {
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest();
    request.open("PUT", path);
    request.setRequestHeader("Authorization", `Bearer ${token()}`);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.responseType = "json";
    request.upload.onprogress = ({ loaded }) => progress(loaded);
    request.onload = () => (request.status < 300 ? done() : failed(new Problem(request.response ?? {}, request.status)));
    request.onerror = () => failed(new Error(`the upload of ${file.name} broke off; nothing was posted, try again`));
    request.send(file);
  });
}
