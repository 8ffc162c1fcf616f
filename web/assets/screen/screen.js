// The screen of a terminal. It is a page of its own in a sandbox without an origin: what a workload shows is parsed
// here, by a library of others, and reaches nothing of the console's. All that it can do is show, and say what was typed.

/** @import * as Xterm from "@xterm/xterm" */
/** @import * as Fit from "@xterm/addon-fit" */
/** @import { FromScreen, ToScreen } from "../job/seat.js" */

/** @type {typeof globalThis & {Terminal: typeof Xterm.Terminal, FitAddon: {FitAddon: typeof Fit.FitAddon}}} */
const libraries = Object(globalThis);
const terminal = new libraries.Terminal({ cursorBlink: true, fontFamily: "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace", fontSize: 14, screenReaderMode: true, theme: { background: "#0b0d0f", foreground: "#e3e6e8" } });
const fit = new libraries.FitAddon.FitAddon();
const typed = new TextEncoder();

/** The console opens the one line that there is. */
addEventListener("message", ({ source, ports: [line] }) => {
  if (source !== parent || !line) return;
  let shown = 0;
  const say = (/** @type {FromScreen} */ said) => line.postMessage(said);
  terminal.loadAddon(fit);
  const place = document.getElementById("screen");
  if (!place) throw new Error("this page has no screen");
  terminal.open(place);
  terminal.onResize(({ rows, cols }) => say({ rows, columns: cols }));
  terminal.onData((text) => say({ typed: typed.encode(text) }));
  terminal.onBinary((text) => say({ typed: Uint8Array.from(text, (one) => one.charCodeAt(0)) }));
  line.onmessage = ({ data }) => {
    /** @type {ToScreen} */
    const told = data;
    if ("end" in told) {
      terminal.options.disableStdin = true;
      terminal.write(`\r\n\x1b[0m[${told.end.replaceAll(/\p{Cc}/gu, " ")}]\r\n`);
      return;
    }
    terminal.write(told.show, () => say({ shown: (shown += told.show.length) }));
  };
  fit.fit();
  addEventListener("resize", () => fit.fit());
  say({ rows: terminal.rows, columns: terminal.cols });
  terminal.focus();
}, { once: true });
