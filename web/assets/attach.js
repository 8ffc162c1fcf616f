// What goes along with a job from this browser: files, named by the hash of their bytes, and secrets.

import { Problem, token } from "./api.js";
import { toHex } from "./bytes.js";
import { make } from "./live.js";
import { FormFault } from "./spec.js";
import { size } from "./units.js";

const FILE_MOST = 256 * 2 ** 20; // read into memory to be hashed; the command line takes more
const MODE = 0o644;
const NAME = /^[A-Za-z_][A-Za-z0-9_]{0,127}$/; // the adapter's rule
const RESERVED = /^(LD_|NVIDIA_|CUDA_MPS_|DYLD_)/; // set by the adapter only

const removeButton = (what, remove) => make("button", { type: "button", class: "quiet icon-only", "aria-label": `Remove ${what}`, onclick: remove }, "✕");

/** Rows of a name and a value that is never shown, stored in clear, or sent unsealed. */
export class Secrets {
  constructor(list, changed) {
    Object.assign(this, { list, changed });
  }

  add(name = "") {
    const row = make("li", {},
      make("label", {}, "Name", make("input", { name: "secret-name", class: "long", value: name, placeholder: "HF_TOKEN", maxlength: 128, autocomplete: "off", spellcheck: "false" })),
      make("label", {}, "Value", make("input", { name: "secret-value", type: "password", autocomplete: "off" })),
      removeButton("this secret", () => this.drop(row)));
    this.list.append(row);
    row.querySelector(name ? "[type=password]" : "input").focus();
    this.changed();
  }

  drop(row) {
    row.remove();
    this.changed();
  }

  rows() {
    return [...this.list.children].map((row) => [...row.querySelectorAll("input")]).filter(([name, value]) => name.value.trim() || value.value);
  }

  /** Their names; FormFault for one that no adapter takes. */
  names() {
    const names = this.rows().map(([name]) => name.value.trim());
    for (const [i, name] of names.entries()) {
      const fault = !NAME.test(name) ? "is letters, digits and underscores, such as HF_TOKEN" : RESERVED.test(name) ? "is a name that only the provider sets" : names.indexOf(name) !== i ? "is there twice" : "";
      if (fault) throw new FormFault(this.rows()[i][0], `the secret ${name || "without a name"} ${fault}`);
    }
    return names;
  }

  /** Values by name, once the job is posted; FormFault for an empty one. */
  values() {
    this.names();
    const empty = this.rows().find(([, value]) => !value.value);
    if (empty) throw new FormFault(empty[1], `the secret ${empty[0].value.trim()} has no value`);
    return Object.fromEntries(this.rows().map(([name, value]) => [name.value.trim(), value.value]));
  }
}

/** Files of the form: hashed when they are chosen, uploaded when the job is posted. */
export class Files {
  constructor(list, changed) {
    Object.assign(this, { list, changed, kept: new Map() });
  }

  async take(chosen) {
    for (const file of chosen) {
      if (file.size > FILE_MOST) throw new FormFault("files", `${file.name} has ${size(file.size)}; from a browser a file has at most ${size(FILE_MOST)}: tally job run takes more`);
      const hash = await crypto.subtle.digest("SHA-256", await file.arrayBuffer());
      this.row({ dst: file.name, sha256: toHex(new Uint8Array(hash)), size: file.size, file });
    }
    this.changed();
  }

  /** A file that is chosen now, or one that an earlier job of this account took along. */
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

  /** As a job's specification names them; FormFault for a path outside of the workspace. */
  spec() {
    const files = [...this.kept.values()].map((entry) => [entry.place.value.trim(), entry.sha256, entry.size, MODE]);
    for (const [i, [dst]] of files.entries()) {
      const inner = dst.replace(/^\/workspace\//, "");
      const fault = !inner || inner.startsWith("/") || inner.split("/").includes("..") ? "does not lie under /workspace" : files.findIndex(([other]) => other === dst) !== i ? "is there twice" : "";
      if (fault) throw new FormFault([...this.kept.values()][i].place, `${dst || "a file without a path"} ${fault}`);
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

/** fetch tells nothing of an upload's progress. */
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
