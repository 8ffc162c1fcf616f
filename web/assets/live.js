// A page is rendered once, on the server; a live part is that same rendering, fetched again.

const TIMES_MS = 5000;
const LOST_AFTER = 2; // fetches that failed in a row before the page says so
let lost = 0;
let heardAt = Date.now();

/** Replace every `data-live` part of this page that has changed; the focus stays where it is. */
export async function refresh() {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } }).catch(() => null);
  noteAnswer(Boolean(answer) && answer.status < 500);
  if (!answer?.ok || answer.redirected) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of document.querySelectorAll("[data-live]")) {
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

/** The page says when the market stops answering, and since when what it shows is old. */
function noteAnswer(ok) {
  const place = document.getElementById("offline");
  lost = ok ? 0 : lost + 1;
  if (ok) heardAt = Date.now();
  place.hidden = lost < LOST_AFTER;
  const text = `The market does not answer. This page shows what was known at ${new Date(heardAt).toLocaleTimeString()}; it goes on by itself.`;
  if (!place.hidden && place.textContent !== text) place.textContent = text;
}

/** What only makes sense with JavaScript is hidden until it is there. */
export function reveal(root = document) {
  root.querySelectorAll("[data-action][hidden], [data-copy][hidden], .needs-script[hidden]").forEach((el) => (el.hidden = false));
}

/** `3 min ago`, `in 2 h`: where *at* lies from *now*, both in milliseconds. */
export function ago(at, now) {
  const apart = Math.floor(Math.abs(now - at) / 1000);
  if (apart < 5) return at <= now ? "just now" : "in a moment";
  const [unit, size] = [["d", 86_400], ["h", 3600], ["min", 60], ["s", 1]].find(([, s]) => apart >= s);
  const text = `${Math.floor(apart / size)} ${unit}`;
  return at <= now ? `${text} ago` : `in ${text}`;
}

/** Times relative to now or in the reader's own zone; the exact one is in the title. */
export function localTimes(root = document) {
  const now = Date.now();
  root.querySelectorAll("time[datetime]").forEach((el) => {
    const at = new Date(el.dateTime);
    const title = at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
    const text = el.dataset.form === "clock" ? at.toLocaleTimeString(undefined, { hour12: false }) : ago(at.getTime(), now);
    if (el.title !== title) el.title = title;
    if (el.textContent !== text) el.textContent = text;
  });
}

/** Times grow older while the page is open. */
export const keepTimes = () => setInterval(() => document.visibilityState === "visible" && localTimes(), TIMES_MS);

/** Again every *ms* while the page is seen. */
export function keepFresh(ms) {
  setInterval(() => document.visibilityState === "visible" && refresh().catch(() => {}), ms);
}

/** An element with attributes and children; text is text. */
export function make(name, attributes = {}, ...children) {
  const el = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) el.addEventListener(key.slice(2), value);
    else if (value === true) el.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) el.setAttribute(key, value);
  }
  el.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return el;
}

/** Say what went wrong where the page has its place for it; "" clears it. */
export function wrong(text) {
  const place = document.getElementById("wrong");
  if (!place) return;
  place.textContent = text;
  place.hidden = !text;
}

/** A problem of the API in one line: what happened, and what helps. */
export const inWords = (error) => (error.remedy ? `${error.message}. What helps: ${error.remedy}.` : error.message);

/** While *work* runs, *button* is busy and takes no second click; what it throws is said. */
export async function busy(button, work) {
  wrong("");
  button.disabled = true;
  button.setAttribute("aria-busy", "true");
  try {
    await work();
  } catch (error) {
    wrong(inWords(error));
  } finally {
    button.disabled = false;
    button.removeAttribute("aria-busy");
  }
}

/** True on the second click within a few seconds: what cannot be undone is asked for twice. */
export function sure(button, question) {
  if (button.dataset.asked) return true;
  const before = button.textContent;
  button.dataset.asked = "yes";
  button.textContent = question;
  setTimeout(() => {
    delete button.dataset.asked;
    if (button.textContent === question) button.textContent = before;
  }, 5000);
  return false;
}

/** Put *text* on the clipboard and say so on *button*. */
export async function copy(button, text) {
  const before = button.textContent;
  await navigator.clipboard.writeText(text);
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = before), 2000);
}

/** A secret in the page's place for it, shown once; the focus goes there. */
export function showOnce(secret) {
  const place = document.getElementById("once");
  document.getElementById("secret").textContent = secret;
  document.getElementById("copy").onclick = ({ target }) => copy(target, secret).catch(() => wrong("this browser does not let the page copy: select the text instead"));
  place.hidden = false;
  place.focus();
}
