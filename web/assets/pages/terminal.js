// A terminal in a running workload: the screen stands in a sandbox, the line to the market is this page's.

import { token } from "../net/api.js";
import { Seat } from "../job/seat.js";
import { byId, the } from "../ui/dom.js";
import { keepFresh } from "../ui/live.js";

/** @import { FromScreen, ToScreen } from "../job/seat.js" */

const FRESH_MS = 4000;
const AGAIN_MS = 1000;
const PAUSED_TRIES = 60;
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
  const told = byId("said");
  let [behind, counted, tries] = [0, 0, 0];
  let size = { rows: 0, columns: 0 };
  /** @type {Seat | undefined} */
  let seat;
  const say = (/** @type {ToScreen} */ what) => line.postMessage(what);
  const open = () => {
    seat = new Seat(job, JSON.parse(command), size, token(), shows, ended);
  };
  const shows = (/** @type {Uint8Array} */ data) => {
    told.textContent = "";
    tries = PAUSED_TRIES;
    behind += data.length;
    if (behind <= BEHIND_MOST) return say({ show: data });
    seat?.close();
    return over("more came than this page can show");
  };
  /** A job that was paused while no page paid goes on once this one does. */
  const ended = (/** @type {string} */ why) => {
    if (!why.startsWith("CONFLICT") || tries++ >= PAUSED_TRIES) return over(why);
    told.textContent = "The job does not run just now: the terminal opens when it goes on.";
    setTimeout(open, AGAIN_MS);
    return undefined;
  };
  const over = (/** @type {string} */ why) => {
    say({ end: why || "it has ended" });
    told.textContent = why ? `The terminal has ended: ${why}` : "The terminal has ended.";
    again.hidden = false;
  };
  line.onmessage = ({ data }) => {
    /** @type {FromScreen} */
    const heard = data;
    if ("typed" in heard) return seat?.type(new Uint8Array(heard.typed));
    if ("shown" in heard) {
      behind -= heard.shown - counted;
      counted = heard.shown;
      return undefined;
    }
    size = heard;
    return seat ? seat.resize(size) : open();
  };
  told.textContent = "";
  // The sandbox has no origin that could be named; what is handed over is the line, and nothing else.
  frame.contentWindow?.postMessage("", "*", [theirs]);
}
