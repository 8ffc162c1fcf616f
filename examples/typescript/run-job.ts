// Run one job, print its output and its bill.
//
// Needs a funded purse (`tally purse fund`, or Purse.create) and TALLY_HOME, TALLY_PASSPHRASE_FILE, TALLY_MARKET,
// TALLY_CHAIN_URL: `tally up` sets them all in its `env`.

import { writeFile } from "node:fs/promises";

import { ada, evidenceText, Purse, Tally, verify } from "@tally/sdk";

const purse = await Purse.load();
const tally = await Tally.connect({ purse, keepMs: 0 }); // its channel ends with the job
try {
  const job = await tally.run({
    name: "from-typescript",
    image: process.argv[2] ?? "tally/python:local",
    command: ["python3", "-u", "-c", "import time\nfor n in range(5): print('six by', n, 'is', 6 * n); time.sleep(1)"],
    cpuMilli: 500,
    memoryMib: 128,
    budget: 5_000_000, // lovelace: the most that it may ever cost
    maxDurationMs: 300_000,
  }, { confirm: ({ provider, ceiling }) => (console.log(`at most ${ada(ceiling)} to ${provider.slice(0, 16)}`), true) });
  for await (const line of job.logs()) console.log(line);
  const { reason, exit_code } = await job.done();
  await job.settled(); // its channel has ended on the chain
  const evidence = await job.invoice();
  const bill = await verify(evidence, { chain: tally.chain });
  await writeFile(`${job.id}.invoice.json`, evidenceText(evidence)); // for any verifier: `tally invoice FILE --verify`
  console.log(`${job.id} ${reason} ${exit_code}: ${ada(bill.owed)}, reconciled: ${bill.reconciled}`);
} finally {
  await tally.close();
}
