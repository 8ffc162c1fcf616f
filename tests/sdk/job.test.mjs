// A job as it is asked for becomes the specification that is posted; and what is done about a job at a look.
import assert from "node:assert/strict";
import { test } from "node:test";

const from = (path) => import(new URL(path, process.env.TALLY_SDK));
const { specOf } = await from("./spec.js");
const { next } = await from("./follow.js");
const digest = (letter) => `sha256:${letter.repeat(64)}`;
const image = `docker.io/library/python@${digest("a")}`;
const asked = { image, budget: 1_000_000, maxDurationMs: 60_000 };
const none = async () => assert.fail("no offer is needed");
const code = (wanted) => (error) => error.code === wanted || assert.fail(`${error.code}: ${error.message}`);

test("what is left out is what a job file leaves out", async () => {
  const { spec } = await specOf(asked, none);
  assert.deepEqual(spec.resources, [{ cpu: { least: 1000 }, memory: { least: 512 }, disk: { least: 0 } }]);
  assert.deepEqual([spec.kind, spec.image, "egress" in spec, "gpu" in spec.resources[0]], ["job", image, false, false]);
  assert.deepEqual(spec.policy.retry_on, []);
});

test("a rate is the cap of what is metered", async () => {
  const [core, gpu] = await Promise.all([specOf({ ...asked, maxRateMicro: 7 }, none), specOf({ ...asked, maxRateMicro: 7, gpu: { count: 2 } }, none)]);
  assert.deepEqual([core.spec.price.max_core_rate, core.spec.price.max_gpu_rate], [7, 0]);
  assert.deepEqual([gpu.spec.price.max_core_rate, gpu.spec.price.max_gpu_rate], [0, 7]);
  assert.deepEqual(gpu.spec.resources[0].gpu, { models: [], count: { least: 2, most: 2 }, vram: { least: 0 }, share: 1000 });
});

test("money and time are whole numbers", async () => {
  for (const wrong of [{ budget: 1.5 }, { budget: 0 }, { budget: 2 ** 60 }, { maxDurationMs: -1 }, { cpuMilli: Number.NaN }]) {
    await assert.rejects(specOf({ ...asked, ...wrong }, none), code("JOB_BAD_VALUE"));
  }
});

test("an image is its digest; a local name what most offers announce", async () => {
  await assert.rejects(specOf({ ...asked, image: "python:3.11" }, none), code("IMAGE_NOT_PINNED"));
  await assert.rejects(specOf({ ...asked, image: "a:local" }, async () => [{ labels: { "image/a:local": "sha256:no" } }]), code("IMAGE_NOT_PINNED"));
  const offers = ["b", "a", "b"].map((letter) => ({ labels: { "image/a:local": digest(letter) } }));
  const { spec } = await specOf({ ...asked, image: "a:local" }, async () => offers);
  assert.equal(spec.image, digest("b"));
  assert.deepEqual(spec.placement.labels, { "image/a:local": digest("b") });
});

test("files go by their hash, and values of secrets are in nothing that is posted", async () => {
  const { spec, blobs, secrets } = await specOf({ ...asked, files: { in: "taken along" }, secrets: { WORD: "hidden" } }, none);
  assert.deepEqual([...blobs.keys()], [spec.files[0].sha256]);
  assert.deepEqual([spec.secrets, secrets], [["WORD"], { WORD: "hidden" }]);
  assert.equal(JSON.stringify(spec).includes("hidden"), false);
});

test("a block producer's key goes along in no way", async () => {
  const cborHex = `590260${"11".repeat(608)}`;
  const key = JSON.stringify({ type: "KesSigningKey_ed25519_kes_2^6", description: "", cborHex });
  for (const held of [{ files: { "kes.skey": key } }, { secrets: { KES: key } }, { env: { KES: cborHex } }, { command: ["sh", "-c", `echo ${cborHex}`] }]) {
    await assert.rejects(specOf({ ...asked, ...held }, none), code("POOL_KEY_REFUSED"));
  }
});

test("a quote is answered once, and an end is an end", () => {
  const quote = { lease: "lease_1" };
  assert.equal(next({ state: "POSTED", quote: null }, ""), "wait");
  assert.equal(next({ state: "QUOTED", quote }, ""), "answer");
  assert.equal(next({ state: "QUOTED", quote }, "lease_1"), "wait");
  assert.equal(next({ state: "QUOTED", quote: { lease: "lease_2" } }, "lease_1"), "answer");
  assert.equal(next({ state: "ENDED", quote }, ""), "over");
});
