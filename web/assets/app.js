// Every page: theme, session, live parts, the payer, and the page's own module.

import { token } from "./api.js";
import { keepFresh, keepTimes, localTimes, reveal } from "./live.js";
import { startPayer } from "./paying.js";

const PAGES = {
  "sign-in": () => import("./page-sign-in.js"),
  new: () => import("./page-new.js"),
  job: () => import("./page-job.js"),
  invoice: () => import("./page-invoice.js"),
  channels: () => import("./page-channels.js"),
  account: () => import("./page-account.js"),
  keys: () => import("./page-keys.js"),
  webhooks: () => import("./page-webhooks.js"),
};
const FRESH_MS = { market: 5000, offers: 10_000, offer: 10_000, providers: 15_000, provider: 10_000, jobs: 4000, channels: 6000, webhooks: 6000, keys: 15_000 };

const { page, account, magic } = document.body.dataset;

function theme() {
  const button = document.getElementById("theme");
  button.hidden = false;
  button.addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("tally-theme", root.dataset.theme);
  });
}

theme();
localTimes();
keepTimes();
if (FRESH_MS[page]) keepFresh(FRESH_MS[page]);
if (account && token()) startPayer(Number(magic));
const module = PAGES[page] ? await PAGES[page]() : null;
module?.start(document.body.dataset);
reveal(); // what a click would do is ready before it can be clicked
