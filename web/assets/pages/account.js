// The account: what this browser keeps of it, and the way out.

import { dropToken, post } from "../net/api.js";
import { messageOf } from "../crypto/bytes.js";
import { byId, the } from "../ui/dom.js";
import { chooseDoor, door } from "../chain/chosen.js";
import { make } from "../ui/live.js";
import { left, living } from "../money/payer.js";
import { amount } from "../ui/amounts.js";
import * as vault from "../money/vault.js";

/** @import { Reader } from "../ui/dom.js" */

export async function start(/** @type {Reader} */ { account }) {
  const out = byId("sign-out");
  out.hidden = false;
  out.addEventListener("click", signOut);
  await keys(account);
  await chain();
}

/** Which chain's face is read, and the choice of another. */
async function chain() {
  const form = the("chain-form", HTMLFormElement);
  const say = async () => {
    const at = await door();
    byId("chain-now").textContent = !at ? "Nowhere: this market names no chain. Channels can be neither topped up nor closed here until you choose one." : at.own ? `At ${at.url}, which you chose.` : `At ${at.url}, which the market named.`;
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    try {
      chooseDoor(form.url.value, form.project.value);
      location.reload(); // the page may connect there only once it is loaded again
    } catch (error) {
      byId("chain-now").textContent = `That is no address: ${messageOf(error)}`;
    }
  });
  byId("chain-reset").addEventListener("click", () => {
    chooseDoor("");
    location.reload();
  });
  await say();
}

async function signOut() {
  await post("/v1/auth/logout").catch(() => {}); // a session that is over is signed out as well
  await post("/session/end").catch(() => {});
  dropToken();
  location.assign("/");
}

async function keys(/** @type {string} */ account) {
  const books = (await vault.open()).filter((book) => book.account === account);
  const paying = books.filter(living);
  const kept = books.filter((book) => !living(book));
  const fact = (/** @type {string} */ name, /** @type {string | Node} */ value) => make("div", {}, make("dt", {}, name), make("dd", {}, value));
  byId("vault").replaceChildren(
    make("dl", { class: "facts" },
      fact("Channels it pays now", String(paying.length)),
      fact("Channels kept for later jobs", String(kept.length)),
      fact("Left in those", amount(kept.reduce((sum, book) => sum + left(book), 0n)))),
    make("p", { class: "hint" }, "The session keys cannot be read by any script and never leave this browser. If its data is lost, the wallet can still close each channel from ", make("a", { href: "/channels" }, "Channels"), "."));
}
