// A relay that does as it is told. peer.mjs MAGIC says its port, then what it was asked, a line each. On stdin: {"slot",
// "block", "header", "hash"}, a block more; {"back": slot}, the chain ends there again.

import { createInterface } from "node:readline";

import { block, Relay } from "./relay.mjs";

const say = (...words) => console.log(words.join(" "));
const relay = new Relay(Number(process.argv[2]), say);
say("port", await relay.listen(0, "127.0.0.1"));

createInterface({ input: process.stdin }).on("line", (line) => {
  const told = JSON.parse(line);
  if ("back" in told) relay.back(told.back);
  else relay.add(block(told));
  say("has", relay.last?.slot ?? "nothing");
});
