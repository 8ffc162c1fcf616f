// API keys: made here, shown once, revoked.

import { call, post } from "../net/api.js";
import { byId, control, hit, submitOf, the } from "../ui/dom.js";
import { busy, refresh, showOnce, sure, wrong } from "../ui/live.js";
import { parseAda } from "../money/units.js";

const DAY_MS = 86_400_000;

export function start() {
  const form = the("new-key", HTMLFormElement);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    create(form);
  });
  document.addEventListener("click", (event) => {
    const button = hit(event, "button[data-action=revoke]");
    if (button && sure(button, "Revoke it?")) busy(button, () => revoke(button));
  });
}

function create(/** @type {HTMLFormElement} */ form) {
  const verbs = new FormData(form).getAll("verbs");
  const budget = parseAda(form.budget.value);
  const month_cap = form.month.value.trim() ? parseAda(form.month.value) : 0;
  const name = control(form, "name").value.trim();
  /** @type {[field: string, text: string] | null} */
  const fault = !name ? ["name", "a key has a name, such as ci"] : budget === null ? ["budget", "the budget is an amount of ADA, such as 10 or 2.5"] : month_cap === null ? ["month", "a cap a month is an amount of ADA, such as 10, or nothing"] : !verbs.length ? ["", "a key may do one thing at least"] : null;
  for (const el of form.elements) el.removeAttribute("aria-invalid");
  if (fault) {
    wrong(fault[1]);
    if (!fault[0]) return;
    control(form, fault[0]).setAttribute("aria-invalid", "true");
    control(form, fault[0]).focus();
    return;
  }
  const expires_at_ms = Date.now() + Number(form.days.value) * DAY_MS;
  busy(submitOf(form), async () => {
    const made = await post("/v1/keys", { name, verbs, budget, month_cap, expires_at_ms });
    showOnce(made.secret);
    form.reset();
    await refresh();
  });
}

async function revoke(/** @type {HTMLElement} */ button) {
  await call("DELETE", `/v1/keys/${encodeURIComponent(button.dataset.key ?? "")}`);
  byId("said").textContent = `The key ${button.dataset.name} is revoked.`;
  button.blur();
  await refresh();
}
