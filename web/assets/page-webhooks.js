// Webhooks: made here, their secret shown once, rotated, deleted.

import { call, post } from "./api.js";
import { busy, refresh, showOnce, sure, wrong } from "./live.js";

export function start() {
  const form = document.getElementById("new-hook");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    create(form);
  });
  document.addEventListener("click", ({ target }) => {
    const button = target.closest?.("button[data-action]");
    const work = ACTIONS[button?.dataset.action];
    if (work && sure(button, work.question)) busy(button, () => work.run(button.dataset));
  });
}

const say = (text) => (document.getElementById("said").textContent = text);
const path = (hook, rest = "") => `/v1/webhooks/${encodeURIComponent(hook)}${rest}`;

function create(form) {
  const url = form.url.value.trim();
  form.url.removeAttribute("aria-invalid");
  if (!URL.canParse(url)) {
    wrong("a webhook is an https URL, such as https://example.org/tally");
    form.url.setAttribute("aria-invalid", "true");
    form.url.focus();
    return;
  }
  const kinds = [...form.querySelectorAll("[name=kinds]:checked")].map((box) => box.value);
  busy(form.querySelector("[type=submit]"), async () => {
    const made = await post("/v1/webhooks", { url, kinds });
    showOnce(made.secret);
    form.reset();
    await refresh();
  });
}

const ACTIONS = {
  rotate: {
    question: "Rotate it?",
    run: async ({ hook, url }) => {
      showOnce((await post(path(hook, "/rotate"))).secret);
      say(`The secret of ${url} is another now.`);
      await refresh();
    },
  },
  remove: {
    question: "Delete it?",
    run: async ({ hook, url }) => {
      await call("DELETE", path(hook));
      say(`${url} is told nothing more.`);
      document.activeElement?.blur();
      await refresh();
    },
  },
};
