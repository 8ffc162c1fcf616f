// A page is rendered once, on the server; a live part is that same rendering, fetched again.

import { Problem } from "../net/api.js";
import { messageOf } from "../crypto/bytes.js";
import { byId } from "./dom.js";

const TIMES_MS = 5000;
const SURE_MS = 20_000; // whoever reads slowly, or by ear, answers within this
const LOST_AFTER = 2; // fetches that failed in a row before the page says so
let lost = 0;
let heardAt = Date.now();

/** Replace every `data-live` part of this page that has changed; the focus stays where it is. */
export async function refresh() {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } }).catch(() => null);
  noteAnswer(answer !== null && answer.status < 500);
  if (!answer?.ok || answer.redirected) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of document.querySelectorAll("[data-live]")) {
    if (!(part instanceof HTMLElement)) continue;
    const other = fresh.querySelector(`[data-live="${part.dataset.live}"]`);
    if (!other || part.contains(document.activeElement)) continue;
    reveal(other);
    const shown = other.innerHTML.replace(/(<time [^>]*>)[^<]*/g, "$1"); // a time that grew older is no news
    if (part.dataset.shown === shown) continue;
    const opened = [...part.querySelectorAll("details")].map((d) => d.open);
    part.dataset.shown = shown;
    part.replaceChildren(...other.childNodes);
    part.querySelectorAll("details").forEach((d, i) => (d.open = opened[i] ?? d.open));
    localTimes(part);
  }
}

/**
 * The page says when the market stops answering, and since when what it shows is old.
 * @type {(ok: boolean) => void}
 */
function noteAnswer(ok) {
  const place = byId("offline");
  lost = ok ? 0 : lost + 1;
  if (ok) heardAt = Date.now();
  place.hidden = lost < LOST_AFTER;
  const text = `The market does not answer. This page shows what was known at ${new Date(heardAt).toLocaleTimeString()}; it goes on by itself.`;
  if (!place.hidden && place.textContent !== text) place.textContent = text;
}

/**
 * What only makes sense with JavaScript is hidden until it is there.
 * @param {ParentNode} root
 */
export function reveal(root = document) {
  root.querySelectorAll("[data-action][hidden], [data-copy][hidden], .needs-script[hidden]").forEach((el) => el.removeAttribute("hidden"));
}

/** @type {[string, number]} */
const SECOND = ["s", 1];
/** @type {[string, number][]} */
const SIZES = [["d", 86_400], ["h", 3600], ["min", 60]];

/**
 * `3 min ago`, `in 2 h`: where *at* lies from *now*, both in milliseconds.
 * @param {number} at
 * @param {number} now
 */
export function ago(at, now) {
  const apart = Math.floor(Math.abs(now - at) / 1000);
  if (apart < 5) return at <= now ? "just now" : "in a moment";
  const [unit, size] = SIZES.find(([, seconds]) => apart >= seconds) ?? SECOND;
  const text = `${Math.floor(apart / size)} ${unit}`;
  return at <= now ? `${text} ago` : `in ${text}`;
}

/**
 * Times relative to now or in the reader's own zone; the exact one is in the title.
 * @param {ParentNode} root
 */
export function localTimes(root = document) {
  const now = Date.now();
  root.querySelectorAll("time").forEach((el) => {
    if (!el.dateTime) return;
    const at = new Date(el.dateTime);
    const title = at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
    const text = el.dataset.form === "clock" ? at.toLocaleTimeString(undefined, { hour12: false }) : ago(at.getTime(), now);
    if (el.title !== title) el.title = title;
    if (el.textContent !== text) el.textContent = text;
  });
}

/** Times grow older while the page is open. */
export function keepTimes() {
  setInterval(() => {
    if (document.visibilityState === "visible") localTimes();
  }, TIMES_MS);
}

/**
 * Again every *ms* while the page is seen.
 * @param {number} ms
 */
export function keepFresh(ms) {
  setInterval(() => {
    if (document.visibilityState === "visible") refresh().catch(() => {}); // noteAnswer said so
  }, ms);
}

/**
 * An element with attributes and children; text is text.
 * @template {keyof HTMLElementTagNameMap} N
 * @param {N} name
 * @param {{[attribute: string]: unknown}} attributes; `onclick` and its like are listeners
 * @param {...(Node | string | number | false | null | undefined)} children
 * @returns {HTMLElementTagNameMap[N]}
 */
export function make(name, attributes = {}, ...children) {
  const el = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") el.addEventListener(key.slice("on".length), (event) => value(event));
    else if (value === true) el.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) el.setAttribute(key, String(value));
  }
  for (const child of children) if (child !== null && child !== undefined && child !== false) el.append(child instanceof Node ? child : String(child));
  return el;
}

/**
 * Say what went wrong where the page has its place for it; "" clears it.
 * @param {string} text
 */
export function wrong(text) {
  const place = document.getElementById("wrong");
  if (!place) return;
  place.textContent = text;
  place.hidden = !text;
}

/**
 * A problem of the API in one line: what happened, and what helps.
 * @type {(thrown: unknown) => string}
 */
export const inWords = (thrown) =>
  (thrown instanceof Problem && thrown.remedy ? `${thrown.message}. What helps: ${thrown.remedy}.` : messageOf(thrown));

/**
 * While *work* runs, *button* is busy and takes no second click; what it throws is said.
 * @param {HTMLElement} button
 * @param {() => Promise<unknown>} work
 */
export async function busy(button, work) {
  wrong("");
  button.toggleAttribute("disabled", true);
  button.setAttribute("aria-busy", "true");
  try {
    await work();
  } catch (error) {
    wrong(inWords(error));
  } finally {
    button.toggleAttribute("disabled", false);
    button.removeAttribute("aria-busy");
  }
}

/**
 * True on the second click before the question is forgotten: what cannot be undone is asked for twice.
 * @param {HTMLElement} button
 * @param {string} question
 */
export function sure(button, question) {
  if (button.dataset.asked) return true;
  const before = button.textContent;
  button.dataset.asked = "yes";
  button.textContent = question;
  setTimeout(() => {
    delete button.dataset.asked;
    if (button.textContent === question) button.textContent = before;
  }, SURE_MS);
  return false;
}

/**
 * Put *text* on the clipboard and say so on *button*.
 * @param {HTMLElement} button
 * @param {string} text
 */
export async function copy(button, text) {
  const before = button.textContent;
  await navigator.clipboard.writeText(text);
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = before), 2000);
}

/**
 * A secret in the page's place for it, shown once; the focus goes there.
 * @param {string} secret
 */
export function showOnce(secret) {
  const [place, button] = [byId("once"), byId("copy")];
  byId("secret").textContent = secret;
  button.onclick = () => copy(button, secret).catch(() => wrong("this browser does not let the page copy: select the text instead"));
  place.hidden = false;
  place.focus();
}
