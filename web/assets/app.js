// Every page: theme, session, live parts, the payer, and the page's own module.

import { dropToken, post, token } from "./api.js";
import { keepFresh, localTimes, reveal } from "./live.js";
import { startPayer } from "./paying.js";

const PAGES = {
  "sign-in": () => import("./page-sign-in.js"),
  new: () => import("./page-new.js"),
  job: () => import("./page-job.js"),
  invoice: () => import("./page-invoice.js"),
  channels: () => import("./page-channels.js"),
};
const FRESH_MS = { market: 5000, offers: 10_000, offer: 10_000, providers: 15_000, provider: 10_000, jobs: 4000, channels: 6000 };

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

function session() {
  const out = document.getElementById("sign-out");
  if (!out) return;
  out.hidden = false;
  out.addEventListener("click", async () => {
    await post("/v1/auth/logout").catch(() => {}); // a session that is over is signed out as well
    await post("/session/end").catch(() => {});
    dropToken();
    location.assign("/");
  });
}

theme();
session();
reveal();
localTimes();
if (FRESH_MS[page]) keepFresh(FRESH_MS[page]);
if (account && token()) startPayer(Number(magic));
if (PAGES[page]) (await PAGES[page]()).start(document.body.dataset);
