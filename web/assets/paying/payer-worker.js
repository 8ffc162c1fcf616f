// The payer of this browser (payer.js). One tab pays at a time (a Web Lock); the others take over when it closes.
//
// What it is told and what it says is in orders.js; its own page starts it with {do: "start", magic, token}.

import { messageOf } from "../crypto/bytes.js";
import * as vault from "../money/vault.js";
import { Payer } from "./payer.js";

/** @import { Named, Said } from "./orders.js" */

const told = new BroadcastChannel("tally-payer");
const orders = new BroadcastChannel("tally-orders");
let credentials = "";
/** @type {Payer | undefined} */
let payer; // this tab pays, and has read its books
const taken = new Set();

const say = (/** @type {Said} */ message) => told.postMessage(message);

self.onmessage = (/** @type {MessageEvent<{do: "start", magic: number, token: string}>} */ { data }) => {
  if (data.do === "start") {
    credentials = data.token;
    navigator.locks.request("tally-payer", () => pay(data.magic)).catch((error) => say({ what: "fault", message: messageOf(error) }));
  }
};
// Another tab of this browser may be the one that pays: orders go to whoever does.
orders.onmessage = (/** @type {MessageEvent<Named>} */ { data }) => {
  if (!payer || taken.has(data.name)) return; // it is said again
  taken.add(data.name);
  if (data.token) credentials = data.token;
  payer.order(data).then(() => say({ what: "took", name: data.name }));
};

/** @type {(magic: number) => Promise<void>} */
async function pay(magic) {
  payer = await Payer.of({ vault, say, read, dial, origin: location.origin, software: "tally-console/0.1", now }, magic);
  await payer.pay();
}

const now = () => performance.timeOrigin + performance.now(); // monotonic within this page's life

function dial() {
  const scheme = self.location.protocol === "https:" ? "wss" : "ws";
  return new WebSocket(`${scheme}://${self.location.host}/v1/payer`);
}

/** @type {(path: string) => Promise<any>} */
async function read(path) {
  const answer = await fetch(path, { headers: { Authorization: `Bearer ${credentials}` } });
  return answer.ok ? answer.json() : null;
}
