// The purse at one glance, on the Channels page: what is free, what is locked where, and how it comes home.

import { byId } from "../ui/dom.js";
import { make } from "../ui/live.js";
import { amount } from "../ui/amounts.js";
import { short } from "../money/units.js";
import { holdings } from "./holdings.js";
import { here } from "./browser.js";
import { walletSaid } from "./wallet.js";

/** @import { Holdings, Held } from "./holdings.js" */

const LOOK_MS = 6000;

/** @type {(name: string, lovelace: bigint) => HTMLElement} */
const tile = (name, lovelace) => make("div", {}, make("dt", {}, name), make("dd", {}, amount(lovelace)));
/** @type {(held: Held) => HTMLElement} */
const row = ({ id, lovelace, owed, way }) =>
  make("div", {}, make("dt", {}, make("a", { href: `#${id}`, class: "key" }, short(id)), make("small", {}, way)),
    make("dd", {}, amount(lovelace), owed ? make("small", {}, " ", amount(owed), " of it are owed") : ""));

/** @type {(held: Held[]) => bigint} */
const sum = (held) => held.reduce((all, { lovelace }) => all + lovelace, 0n);

/** @type {(found: Holdings) => HTMLElement[]} */
function glance({ free, held }) {
  const [locked, owed] = [sum(held), held.reduce((all, one) => all + one.owed, 0n)];
  const tiles = [tile("Free in the wallet", free), tile("In channels", locked), tile("Of it owed", owed), tile("Comes home", locked - owed), tile("Yours in all", free + locked - owed)];
  const rows = held.length ? make("dl", { class: "bill" }, ...held.map(row)) : make("p", { class: "hint" }, "Nothing is locked: no channel of this wallet is open.");
  return [make("dl", { class: "tiles" }, ...tiles), rows];
}

/** Look now, and again while the page is there. @param {number} magic */
export function startPurse(magic) {
  const place = byId("purse-body");
  let shown = "";
  const look = async () => {
    const parts = await told(magic);
    const text = parts.map((part) => part.outerHTML).join("");
    if (text !== shown) place.replaceChildren(...parts);
    shown = text;
    setTimeout(look, LOOK_MS);
  };
  look();
}

/** @type {(magic: number) => Promise<HTMLElement[]>} */
async function told(magic) {
  try {
    const found = await holdings(here(magic));
    return found ? glance(found) : [make("p", { class: "notice" }, "This market names no chain, so what the ledger holds for you cannot be read here. ", make("a", { href: "/account#chain" }, "Choose where to read the chain"))];
  } catch (error) {
    return [make("p", { class: "notice" }, `What the ledger holds for you cannot be read now: ${walletSaid(error)}`)];
  }
}
