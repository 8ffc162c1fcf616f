// Webhooks: made here, their secret shown once, rotated, deleted.

import { call, post } from "../net/api.js";
import { byId, hit, submitOf, the } from "../ui/dom.js";
import { busy, refresh, showOnce, sure, wrong } from "../ui/live.js";

export function start() {
  const form = the("new-hook", HTMLFormElement);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    create(form);
  });
  document.addEventListener("click", (event) => {
    const button = hit(event, "button[data-action]");
    const work = ACTIONS[button?.dataset.action ?? ""];
    const { hook = "", url = "" } = button?.dataset ?? {};
    if (button && work && sure(button, work.question)) busy(button, () => work.run({ hook, url }));
  });
}

const say = (/** @type {string} */ text) => {
  byId("said").textContent = text;
};
const path = (/** @type {string} */ hook, rest = "") => `/v1/webhooks/${encodeURIComponent(hook)}${rest}`;

function create(/** @type {HTMLFormElement} */ form) {
  const url = form.url.value.trim();
  form.url.removeAttribute("aria-invalid");
  if (!URL.canParse(url)) {
    wrong("a webhook is an https URL, such as https://example.org/tally");
    form.url.setAttribute("aria-invalid", "true");
    form.url.focus();
    return;
  }
  const kinds = new FormData(form).getAll("kinds");
  busy(submitOf(form), async () => {
    const made = await post("/v1/webhooks", { url, kinds });
    showOnce(made.secret);
    form.reset();
    await refresh();
  });
}

/** @type {{[action: string]: {question: string, run: (hook: {hook: string, url: string}) => Promise<void>}}} */
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
      if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
      await refresh();
    },
  },
};
