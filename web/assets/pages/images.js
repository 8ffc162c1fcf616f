// The account's images: who may pull them, and deleting.

import { call } from "../net/api.js";
import { byId, hit } from "../ui/dom.js";
import { busy, refresh, sure } from "../ui/live.js";

export function start() {
  document.addEventListener("click", (event) => {
    const button = hit(event, "button[data-action]");
    const { action, name = "", digest = "" } = button?.dataset ?? {};
    const at = `/v1/registry/images/${encodeURIComponent(name)}`;
    if (!button) return;
    if (action === "share" && sure(button, "Let anybody pull it?")) busy(button, () => change(at, true, `Anybody may pull ${name} now.`));
    if (action === "keep") busy(button, () => change(at, false, `${name} is yours alone again.`));
    if (action === "delete" && sure(button, "Delete it?")) busy(button, () => remove(`${at}/${digest}`, `${name} is deleted.`));
  });
}

/** @type {(at: string, open: boolean, said: string) => Promise<void>} */
async function change(at, open, said) {
  await call("PUT", at, { public: open });
  await tell(said);
}

/** @type {(at: string, said: string) => Promise<void>} */
async function remove(at, said) {
  await call("DELETE", at);
  await tell(said);
}

/** @param {string} said */
async function tell(said) {
  byId("said").textContent = said;
  if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
  await refresh();
}
