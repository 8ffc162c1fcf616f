// A terminal in a running workload: the screen stands in a sandbox, the line to the market is this page's.

import { token } from "../net/api.js";
import { Seat } from "../job/seat.js";
import { byId, the } from "../ui/dom.js";
import { keepFresh } from "../ui/live.js";

/** @import { FromScreen, ToScreen } from "../job/seat.js" */

const FRESH_MS = 4000;
const BEHIND_MOST = 32 * 2 ** 20; // bytes that the screen has not shown yet

export function start() {
  keepFresh(FRESH_MS);
  const frame = document.getElementById("screen");
  if (!(frame instanceof HTMLIFrameElement) || !token()) return;
  const again = the("again", HTMLButtonElement);
  again.onclick = () => {
    again.hidden = true;
    frame.src = frame.dataset.src ?? ""; // an empty screen
  };
  frame.addEventListener("load", () => sit(frame, again));
  frame.src = frame.dataset.src ?? "";
}

/** @type {(frame: HTMLIFrameElement, again: HTMLButtonElement) => void} */
function sit(frame, again) {
  const { job = "", command = "[]" } = byId("terminal").dataset;
  const { port1: line, port2: theirs } = new MessageChannel();
  let behind = 0;
  let counted = 0;
  /** @type {Seat | undefined} */
  let seat;
  const say = (/** @type {ToScreen} */ told) => line.postMessage(told);
  const over = (/** @type {string} */ why) => {
    say({ end: why || "it has ended" });
    byId("said").textContent = why ? `The terminal has ended: ${why}` : "The terminal has ended.";
    again.hidden = false;
  };
  const shows = (/** @type {Uint8Array} */ data) => {
    behind += data.length;
    if (behind <= BEHIND_MOST) return say({ show: data });
    seat?.close();
    return over("more came than this page can show");
  };
  line.onmessage = ({ data }) => {
    /** @type {FromScreen} */
    const told = data;
    if ("typed" in told) return seat?.type(new Uint8Array(told.typed));
    if ("shown" in told) {
      behind -= told.shown - counted;
      counted = told.shown;
      return undefined;
    }
    if (seat) return seat.resize(told);
    seat = new Seat(job, JSON.parse(command), told, token(), shows, over);
    byId("said").textContent = "";
    return undefined;
  };
  // The sandbox has no origin that could be named; what is handed over is the line, and nothing else.
  frame.contentWindow?.postMessage("", "*", [theirs]);
}
