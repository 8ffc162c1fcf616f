// A page is rendered once, on the server; a live part is that same rendering, fetched again.

/** Replace every `data-live` part of this page that has changed; the focus stays where it is. */
export async function refresh() {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!answer.ok || answer.redirected) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of document.querySelectorAll("[data-live]")) {
    const other = fresh.querySelector(`[data-live="${part.dataset.live}"]`);
    if (!other || part.contains(document.activeElement)) continue;
    reveal(other);
    if (part.dataset.shown === other.innerHTML) continue;
    const opened = [...part.querySelectorAll("details")].map((d) => d.open);
    part.dataset.shown = other.innerHTML;
    part.replaceChildren(...other.childNodes);
    part.querySelectorAll("details").forEach((d, i) => (d.open = opened[i] ?? d.open));
    localTimes(part);
  }
}

/** What only makes sense with JavaScript is hidden until it is there. */
export function reveal(root = document) {
  root.querySelectorAll("[data-action][hidden], .needs-script[hidden]").forEach((el) => (el.hidden = false));
}

/** Times in the reader's own zone; the machine-readable value stays. */
export function localTimes(root = document) {
  root.querySelectorAll("time[datetime]").forEach((el) => {
    el.title = el.textContent;
    el.textContent = new Date(el.dateTime).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
  });
}

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
