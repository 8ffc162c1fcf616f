// Every page: theme, session, live parts, the payer, and the page's own module.

import { token } from "./net/api.js";
import { byId, hit } from "./ui/dom.js";
import { copy, keepFresh, keepTimes, localTimes, reveal } from "./ui/live.js";
import { startPayer } from "./paying/paying.js";

/** @import { Reader } from "./ui/dom.js" */

/** @type {{[page: string]: () => Promise<{start: (reader: Reader) => unknown}>}} */
const PAGES = {
  "sign-in": () => import("./pages/sign-in.js"),
  new: () => import("./pages/new.js"),
  job: () => import("./pages/job.js"),
  invoice: () => import("./pages/invoice.js"),
  channels: () => import("./pages/channels.js"),
  account: () => import("./pages/account.js"),
  keys: () => import("./pages/keys.js"),
  webhooks: () => import("./pages/webhooks.js"),
  services: () => import("./pages/services.js"),
  images: () => import("./pages/images.js"),
  terminal: () => import("./pages/terminal.js"),
  gang: () => import("./pages/gang.js"),
};
/** @type {{[page: string]: number}} */
const FRESH_MS = { market: 5000, offers: 10_000, offer: 10_000, providers: 15_000, provider: 10_000, jobs: 4000, channels: 6000, webhooks: 6000, services: 4000, images: 10_000, gang: 3000, keys: 15_000 };

const { page = "", account = "", magic } = document.body.dataset;

function theme() {
  const button = byId("theme");
  button.hidden = false;
  button.addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("tally-theme", root.dataset.theme);
  });
}

function copies() {
  document.addEventListener("click", (event) => {
    const button = hit(event, "[data-copy]");
    if (button) copy(button, button.dataset.copy ?? "").catch(() => { button.textContent = "Select it instead"; });
  });
}

theme();
copies();
localTimes();
keepTimes();
const fresh = FRESH_MS[page];
if (fresh) keepFresh(fresh);
if (account && token()) startPayer(Number(magic));
const module = await PAGES[page]?.().catch((/** @type {unknown} */ failed) => {
  dispatchEvent(new Event("tally-incomplete")); // whole.js hears it
  throw failed;
});
module?.start({ account, magic: Number(magic) });
reveal(); // what a click would do is ready before it can be clicked
