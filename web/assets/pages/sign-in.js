// Sign in with a wallet: one signature.

import { byId } from "../ui/dom.js";
import { make, wrong } from "../ui/live.js";
import { signIn, wallets, walletSaid } from "../wallet/wallet.js";

/** @import { Reader } from "../ui/dom.js" */

const WAIT_MS = 150;
const TRIES = 12; // extensions inject themselves late

export function start(/** @type {Reader} */ { magic }) {
  const place = byId("wallets");
  const to = place.dataset.to ?? "/";
  look(place, TRIES, (key, name) => choose(key, name, magic, to));
}

/** @type {(place: HTMLElement, left: number, taken: (key: string, name: string) => void) => void} */
function look(place, left, taken) {
  const found = wallets();
  if (!found.length && left) {
    setTimeout(() => look(place, left - 1, taken), WAIT_MS);
    return;
  }
  place.setAttribute("aria-busy", "false");
  if (!found.length) {
    place.replaceChildren(make("div", { class: "card" },
      make("h2", {}, "No Cardano wallet in this browser"),
      make("p", {}, "Any wallet that speaks CIP-30 will do, such as Eternl, Lace, Typhon, Vespr or Yoroi. Install one as an extension of this browser, open it once, and look again."),
      make("p", { class: "hint" }, "No wallet at all? ", make("code", {}, "tally wallet new"), " makes one on the command line, and a purse pays without any window."),
      make("p", { class: "actions" }, make("button", { type: "button", onclick: () => location.reload() }, "Look again"))));
    return;
  }
  place.replaceChildren(make("ul", { class: "wallets" }, ...found.map(({ key, name, icon }) =>
    make("li", {}, make("button", { type: "button", onclick: () => taken(key, name) }, icon ? make("img", { src: icon, alt: "" }) : "", name)))));
}

/** @type {(key: string, name: string, magic: number, to: string) => Promise<void>} */
async function choose(key, name, magic, to) {
  const said = byId("said");
  wrong("");
  said.textContent = `Waiting for ${name} …`;
  try {
    await signIn(key, magic);
    said.textContent = "Signed in.";
    location.assign(to);
  } catch (error) {
    said.textContent = "";
    wrong(walletSaid(error));
  }
}
