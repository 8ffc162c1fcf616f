// The account's services: opened, shared, ended.

import { call } from "../net/api.js";
import { byId, hit } from "../ui/dom.js";
import { busy, refresh, sure } from "../ui/live.js";
import { openAt, shareAt } from "../job/ports.js";

export function start() {
  document.addEventListener("click", (event) => {
    const button = hit(event, "button[data-action]");
    if (!(button instanceof HTMLButtonElement)) return;
    const { action, name = "" } = button.dataset;
    const at = `/v1/services/${encodeURIComponent(name)}`;
    if (action === "open") busy(button, () => openAt(at));
    if (action === "share") busy(button, () => shareAt(at));
    if (action === "end" && sure(button, "End its address for good?")) busy(button, () => end(at, name));
  });
}

/** @type {(at: string, name: string) => Promise<void>} */
async function end(at, name) {
  await call("DELETE", at);
  byId("said").textContent = `The address of ${name} opens nothing any more.`;
  if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
  await refresh();
}
