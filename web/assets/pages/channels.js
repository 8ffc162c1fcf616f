// Channels: finish, top up, close. The wallet signs only what was read here.

import { byId, hit } from "../ui/dom.js";
import { door } from "../chain/chosen.js";
import { busy, make, refresh, sure } from "../ui/live.js";
import { left, living } from "../money/payer.js";
import { hear, order } from "../paying/paying.js";
import { Refused } from "../money/records.js";
import { startPurse } from "../wallet/glance.js";
import { here } from "../wallet/browser.js";
import { signedStep } from "../wallet/steps.js";
import { about, ada, parseAda } from "../money/units.js";
import * as vault from "../money/vault.js";
import { walletSaid } from "../wallet/wallet.js";

/** @import { Reader } from "../ui/dom.js" */

const LOOK_MS = 3000;
const ground = () => here(Number(document.body.dataset.magic));

/** @param {Reader} reader */
export function start({ magic }) {
  document.addEventListener("click", (event) => {
    const button = hit(event, "button[data-action]");
    const action = ACTIONS[button?.dataset.action ?? ""];
    if (!button || !action) return;
    if (button.dataset.action === "finish" && !sure(button, "Finish it for good?")) return; // no wallet asks for this one
    busy(button, async () => {
      try {
        await action(button.dataset.channel ?? "");
      } catch (error) {
        throw new Error(walletSaid(error), { cause: error }); // with what helps
      }
      button.blur();
      await refresh();
      await kept();
    });
  });
  hear(kept);
  tellDoor();
  startPurse(magic);
  setInterval(kept, LOOK_MS);
  kept();
}

/** Whose word the chain is, where it is not one that this browser's owner chose. */
async function tellDoor() {
  const at = await door().catch(() => null);
  if (at?.own || !document.querySelector("[data-action=close]")) return;
  const place = byId("door");
  place.replaceChildren(at ? `Channels are looked up at ${at.url}, which this market named: its own word. ` : "This market names no chain, so channels can be neither topped up nor closed from here. ",
    make("a", { href: "/account#chain" }, "Choose where to read the chain"));
  place.hidden = false;
}

/** What only this browser knows: whose key it has, and what is left for the next job. */
async function kept() {
  for (const book of await vault.open()) {
    const place = document.querySelector(`[data-left="${book.id}"]`);
    if (!place) continue;
    const text = `${about(left(book))} ${living(book) ? "beyond this job's ceiling" : "for your next job with this provider"}`;
    if (place.textContent !== text) place.replaceChildren(make("span", {}, text));
    place.closest("[hidden]")?.removeAttribute("hidden");
  }
}

const say = (/** @type {string} */ text) => {
  byId("said").textContent = text;
};

/** @type {{[action: string]: (id: string) => Promise<void>}} */
const ACTIONS = {
  finish: async (id) => {
    if (!(await vault.load(id))?.privateKey) throw new Refused("ELSEWHERE", "the key of this channel is in another browser or purse; close it with the wallet instead");
    await order({ do: "finish", id });
    say("Asked the provider to settle and send the rest home.");
  },
  topup: async (id) => {
    const input = document.querySelector(`[data-amount="${id}"]`);
    const amount = input instanceof HTMLInputElement && parseAda(input.value);
    if (!amount) throw new Error("the amount is ADA, such as 5 or 2.5");
    const tx = await signedStep(ground(), id, "topup", amount);
    if ((await vault.load(id))?.state === "OPEN") await order({ do: "topped", id, amount });
    say(`Added ${ada(amount)} in ${tx.slice(0, 10)}….`);
  },
  close: async (id) => {
    const tx = await signedStep(ground(), id, "close", 0);
    say(`Closing began in ${tx.slice(0, 10)}…. After the close period anybody can send the rest home.`);
  },
};
