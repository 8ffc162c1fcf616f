// API keys: made here, shown once, revoked.

import { call, post } from "./api.js";
import { busy, refresh, showOnce, sure, wrong } from "./live.js";
import { parseAda } from "./units.js";

const DAY_MS = 86_400_000;

export function start() {
  const form = document.getElementById("new-key");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    create(form);
  });
  document.addEventListener("click", ({ target }) => {
    const button = target.closest?.("button[data-action=revoke]");
    if (button && sure(button, "Revoke it?")) busy(button, () => revoke(button));
  });
}

function create(form) {
  const verbs = [...form.querySelectorAll("[name=verbs]:checked")].map((box) => box.value);
  const budget = parseAda(form.budget.value);
  const name = form.elements.name.value.trim();
  const fault = !name ? ["name", "a key has a name, such as ci"] : budget === null ? ["budget", "the budget is an amount of ADA, such as 10 or 2.5"] : !verbs.length ? ["", "a key may do one thing at least"] : null;
  for (const el of form.elements) el.removeAttribute("aria-invalid");
  if (fault) {
    wrong(fault[1]);
    form.elements[fault[0]]?.setAttribute("aria-invalid", "true");
    form.elements[fault[0]]?.focus();
    return;
  }
  const expires_at_ms = Date.now() + Number(form.days.value) * DAY_MS;
  busy(form.querySelector("[type=submit]"), async () => {
    const made = await post("/v1/keys", { name, verbs, budget, expires_at_ms });
    showOnce(made.secret);
    form.reset();
    await refresh();
  });
}

async function revoke(button) {
  await call("DELETE", `/v1/keys/${encodeURIComponent(button.dataset.key)}`);
  document.getElementById("said").textContent = `The key ${button.dataset.name} is revoked.`;
  button.blur();
  await refresh();
}
