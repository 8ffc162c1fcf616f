// The account: what this browser keeps of it, and the way out.

import { dropToken, post } from "./api.js";
import { copy, make } from "./live.js";
import { left, living } from "./payer.js";
import { ada } from "./units.js";
import * as vault from "./vault.js";

export async function start({ account }) {
  document.addEventListener("click", ({ target }) => {
    const button = target.closest?.("[data-copy]");
    if (button) copy(button, button.dataset.copy).catch(() => {});
  });
  const out = document.getElementById("sign-out");
  out.hidden = false;
  out.addEventListener("click", signOut);
  await keys(account);
}

async function signOut() {
  await post("/v1/auth/logout").catch(() => {}); // a session that is over is signed out as well
  await post("/session/end").catch(() => {});
  dropToken();
  location.assign("/");
}

async function keys(account) {
  const books = (await vault.all()).filter((book) => book.account === account && book.state === "OPEN");
  const paying = books.filter(living);
  const kept = books.filter((book) => !living(book));
  const fact = (name, value) => make("div", {}, make("dt", {}, name), make("dd", {}, value));
  document.getElementById("vault").replaceChildren(
    make("dl", { class: "facts" },
      fact("Channels it pays now", String(paying.length)),
      fact("Channels kept for later jobs", String(kept.length)),
      fact("Left in those", ada(kept.reduce((sum, book) => sum + left(book), 0n)))),
    make("p", { class: "hint" }, "The session keys cannot be read by any script and never leave this browser. If its data is lost, the wallet can still close each channel from ", make("a", { href: "/channels" }, "Channels"), "."));
}
