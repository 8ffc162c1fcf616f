// A read and a posting by a client whose types `openapi-typescript` made from a market's document.
// Prints what came of it as JSON; compiled by tsc --strict, so that every field here is one of the document's.
import createClient from "openapi-fetch";

import type { components, paths } from "./api";

type Schemas = components["schemas"];

const [url, token, session_vk, consumer_vkh] = process.argv.slice(2) as [string, string, string, string];
const market = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${token}` } });

/** What a call gave, or its problem thrown. */
function given<T>(answer: { data?: T; error?: Schemas["Problem"] }): T {
  if (answer.error !== undefined) throw new Error(`${answer.error.code}: ${answer.error.detail} (${answer.error.remedy})`);
  if (answer.data === undefined) throw new Error("neither an answer nor a problem");
  return answer.data;
}

const offers: Schemas["Offers"] = given(await market.GET("/v1/offers", { params: { query: { limit: 5 } } }));
const free: number = offers.items.flatMap((offer) => offer.gpus).reduce((sum, gpu) => sum + gpu.free_milli, 0);

const spec: Schemas["Spec"] = {
  version: 2,
  name: "generated",
  kind: "job",
  image: `sha256:${"ab".repeat(32)}`,
  command: ["echo", "hello"],
  resources: [{ cpu: { least: 1000 }, memory: { least: 256 }, disk: { least: 0 } }],
  env: {},
  secrets: [],
  files: [],
  ports: [],
  outputs: [],
  placement: { regions: [], isolation: "container", min_trust: 0, labels: {}, providers: [], not_providers: [] },
  price: { max_gpu_rate: 0, max_core_rate: 0, budget: 5_000_000 },
  policy: {
    max_duration_ms: 60_000, retry_on: [], retry_max: 0, idle_gpu_below: 0, idle_for_ms: 0, queue: false, priority: 0,
  },
};
const asked = { spec, session_vk, consumer_vkh, channels: [], spares: [], hop: "" };
const job: Schemas["Job"] = given(await market.POST("/v1/jobs", { body: asked }));

const missing = await market.GET("/v1/jobs/{job_id}", { params: { path: { job_id: "job_none" } } });
const problem: Schemas["Problem"] | undefined = missing.error;

console.log(JSON.stringify({
  offers: offers.items.map((offer) => offer.id),
  free,
  job: job.id,
  budget: job.budget,
  cores: "version" in job.spec ? job.spec.resources[0]?.cpu.least : undefined,
  refused: problem?.code,
}));
