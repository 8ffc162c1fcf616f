// The log of a job's page: it is followed to its end, searched, copied and saved.

import { events, pause, token } from "../net/api.js";
import { byId, the } from "../ui/dom.js";
import { copy, inWords, make, wrong } from "../ui/live.js";

const KEPT = 400_000;
const FOUND_MOST = 10_000;

/**
 * *job*'s log from *from* on; *lease* is the one whose first bytes the page shows already.
 * @param {string} job
 * @param {string | undefined} lease
 * @param {number} from
 */
export async function followLog(job, lease, from) {
  const place = byId("log");
  place.scrollTop = place.scrollHeight; // its end is the news
  tools(job, place);
  let at = from;
  let of = lease;
  for (let attempt = 0; ; attempt++) {
    const query = new URLSearchParams({ follow: "true", from: String(at), ...(of && { lease: of }) });
    try {
      for await (const [name, data] of events(`/v1/jobs/${job}/logs?${query}`)) {
        attempt = 0;
        if (name === "end") return;
        of = data.lease;
        at = data.offset + new TextEncoder().encode(data.text).length;
        append(place, data.text);
      }
    } catch {
      // The market was restarted or the line cut: the log is read on from where it stopped.
    }
    await pause(Math.min(5000, 300 * 2 ** attempt));
  }
}

/** @type {(place: HTMLElement, text: string) => void} */
function append(place, text) {
  const atEnd = place.scrollHeight - place.scrollTop - place.clientHeight < 40;
  place.append(text);
  while ((place.textContent ?? "").length > KEPT && place.firstChild !== place.lastChild) place.firstChild?.remove();
  if (atEnd) place.scrollTop = place.scrollHeight;
}

/**
 * Where *word* stands in *text*, whatever the case.
 * @type {(text: string, word: string) => number[]}
 */
export function places(text, word) {
  const [all, one] = [text.toLowerCase(), word.toLowerCase()];
  /** @type {number[]} */
  const found = [];
  for (let at = one ? all.indexOf(one) : -1; at >= 0 && found.length < FOUND_MOST; at = all.indexOf(one, at + one.length)) found.push(at);
  return found;
}

/** @type {(job: string, place: HTMLElement) => void} */
function tools(job, place) {
  const find = the("log-find", HTMLInputElement);
  let turn = -1;
  const look = () => {
    place.normalize(); // one text, whose parts can be selected
    const text = place.textContent ?? "";
    const found = places(text, find.value);
    turn = found.length ? (turn + 1) % found.length : -1;
    byId("log-found").textContent = find.value ? (found.length ? `${turn + 1} of ${found.length}` : "not in it") : "";
    const at = found[turn];
    if (at !== undefined) show(place, at, find.value.length);
  };
  find.addEventListener("input", () => { turn = -1; look(); });
  find.addEventListener("keydown", (event) => { if (event.key === "Enter") look(); });
  byId("log-copy").onclick = () => copy(byId("log-copy"), place.textContent ?? "").catch(() => wrong("this browser does not let the page copy: select the text instead"));
  byId("log-save").onclick = () => save(job).catch((error) => wrong(inWords(error)));
}

/**
 * Mark it, and bring it into view.
 * @type {(place: HTMLElement, at: number, length: number) => void}
 */
function show(place, at, length) {
  const node = place.firstChild;
  if (!node) return;
  const range = document.createRange();
  range.setStart(node, at);
  range.setEnd(node, at + length);
  const chosen = getSelection();
  chosen?.removeAllRanges();
  chosen?.addRange(range);
  const [box, frame] = [range.getBoundingClientRect(), place.getBoundingClientRect()];
  place.scrollTop += box.top - frame.top - frame.height / 2;
}

/** All that the market keeps of it, not only what is shown. */
async function save(/** @type {string} */ job) {
  const answer = await fetch(`/v1/jobs/${job}/logs`, { headers: { Authorization: `Bearer ${token()}` } });
  if (!answer.ok) throw new Error(`the log cannot be had now (${answer.status})`);
  const link = make("a", { href: URL.createObjectURL(await answer.blob()), download: `${job}.log` });
  link.click();
  URL.revokeObjectURL(link.href);
}
