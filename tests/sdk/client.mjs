// A client that a test kills where it likes: `client.mjs HOW`, with the purse that the environment names. It says each
// thing as a line of JSON.

const { Purse, Tally } = await import(process.env.TALLY_SDK);
const how = process.argv[2];
const die = () => process.kill(process.pid, "SIGKILL");
const say = (said) => console.log(JSON.stringify(said, (_, value) => (typeof value === "bigint" ? Number(value) : value)));

const purse = await Purse.load();
const tally = await Tally.connect({ purse, keepMs: 0 }).catch((error) => {
  say({ refused: error.code });
  process.exit(3);
});
tally.hear((heard) => {
  if (heard.what === "tick") say({ tick: heard.seq, signed: heard.signed });
  if (heard.what === "fault") say({ fault: heard.message });
});

const { market } = tally.consumer;
const post = market.post.bind(market);
if (how === "at-witness") market.post = (path, ...rest) => (path.endsWith("/witness") ? die() : post(path, ...rest));

// One that is to be killed from outside runs for as long as that takes: the next start stops it.
const lines = how === "start" ? 250 : 3;
const asked = {
  name: how, image: "tally/python:local", cpuMilli: 500, memoryMib: 128, budget: 5_000_000, maxDurationMs: 300_000,
  command: ["python3", "-u", "-c", `import time\nfor n in range(${lines}): print('line', n); time.sleep(1)`],
  secrets: how === "start" ? { WORD: "hidden" } : {},
};
if (how === "resume") say({ resumed: tally.resumed.map(({ id }) => id), channels: (await tally.channels()).length });
else {
  const job = await tally.run(asked, how === "at-quote" ? { confirm: die } : {}).catch((error) => {
    say({ refused: error.code, message: error.message });
    process.exit(3);
  });
  say({ job: job.id });
}
for (const job of how === "resume" ? tally.resumed : []) {
  if ((await job.view()).name === "start") {
    await new Promise((done) => tally.hear(({ what }) => what === "tick" && done()));
    await job.stop();
  }
  const { reason } = await job.done();
  const bill = await job.settled();
  say({ ended: job.id, reason, owed: bill.owed, ceiling: bill.lines[0]?.ceiling, signed: bill.channels[0]?.signed, reconciled: bill.reconciled });
}
if (how === "resume") await tally.close();
