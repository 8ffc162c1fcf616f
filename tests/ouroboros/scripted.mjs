// A relay with a life of its own, as a workload: scripted.mjs PORT FILE [FIGURES], the port at which it
// tells Prometheus its tip, under cardano-node's name for it. The file: {magic, zero_ms, first, chain, life}; the
// block of slot *first* is due at *zero_ms* (ms since 1970), and a slot is a second. *life* is [state, seconds] after each
// other: `syncing` and `lagging` have what is old, `tip` has all that is due, `gone` has hung up. Each change is said: a line
// with the state and the time.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";

import { block, Relay } from "./relay.mjs";

const [port, file, figures] = process.argv.slice(2);
const { magic, zero_ms: zeroMs, first, chain, life } = JSON.parse(readFileSync(file, "utf8"));
const OLD = 100;
const blocks = chain.map(block);
const due = (behind) => blocks.filter((one) => (one.slot - first) * 1000 + zeroMs <= Date.now() - behind * 1000);
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

let relay;

if (figures) {
  createServer((_asked, answer) => answer.end(`cardano_node_metrics_slotNum_int ${relay?.last?.slot ?? 0}\n`)).listen(Number(figures), "0.0.0.0");
}

async function begin() {
  relay = new Relay(magic);
  await relay.listen(Number(port), "0.0.0.0");
}

/** Has all blocks that are due *behind* seconds later, and no more. */
function have(behind) {
  const wanted = due(behind);
  const slot = wanted[wanted.length - 1]?.slot ?? 0;
  if (relay.last && relay.last.slot > slot) relay.back(slot);
  for (const one of wanted) if (!relay.last || one.slot > relay.last.slot) relay.add(one);
}

for (const [state, seconds] of life) {
  if (state === "gone") {
    await relay.close();
    relay = undefined;
  } else {
    if (!relay) await begin();
    have(state === "tip" ? 0 : OLD);
  }
  console.log(state, Date.now());
  const until = Date.now() + seconds * 1000;
  while (Date.now() < until) {
    await sleep(Math.min(500, until - Date.now()));
    if (relay) have(state === "tip" ? 0 : OLD);
  }
}
console.log("over", Date.now());
process.exit(0);
