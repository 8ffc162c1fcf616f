// One terminal in a workload: a websocket of bytes, whose first message says whose it is.

/**
 * To the screen: bytes to show, or the line that it ends with.
 * @typedef {{show: Uint8Array} | {end: string}} ToScreen
 * From it: its size, what was typed, and how many bytes it has shown in all.
 * @typedef {{rows: number, columns: number} | {typed: Uint8Array} | {shown: number}} FromScreen
 */

const SPOKEN = "tally.terminal";
const DONE = 1000;

export class Seat {
  /**
   * *shows* takes what the workload shows, *ends* why it is over: "" where its program ended.
   * @param {string} job
   * @param {string[]} command
   * @param {{rows: number, columns: number}} size
   * @param {string} token
   * @param {(data: Uint8Array) => void} shows
   * @param {(why: string) => void} ends
   */
  constructor(job, command, size, token, shows, ends) {
    const asked = new URLSearchParams([...command.map((word) => ["command", word]), ["rows", String(size.rows)], ["columns", String(size.columns)]]);
    const at = new URL(`/v1/jobs/${encodeURIComponent(job)}/shell?${asked}`, location.href);
    at.protocol = at.protocol.replace("http", "ws");
    this.socket = new WebSocket(at, SPOKEN);
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => this.socket.send(JSON.stringify({ token }));
    this.socket.onmessage = ({ data }) => shows(new Uint8Array(data));
    this.socket.onclose = ({ code, reason }) => ends(code === DONE ? reason : reason || "the line broke: open the terminal again");
  }

  /** @param {Uint8Array<ArrayBuffer>} data */
  type(data) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(data);
  }

  /** @param {{rows: number, columns: number}} size */
  resize(size) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(size));
  }

  close() {
    this.socket.close();
  }
}
