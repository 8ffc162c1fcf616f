// What is asked for, and the job's specification that is made of it: the form which is posted, hashed into the terms
// and read by the provider. It is made here, so that no market resolves it to something else.

import { createHash } from "node:crypto";

import { poolKeyIn, POOL_KEY_REFUSED, REMEDY } from "../../assets/crypto/pool_keys.js";
import { Refusal } from "./refusal.js";
import type { FileIn, GpuNeed, JobSpec } from "../../assets/money/jobspec.js";
import type { components } from "../generated/api.js";

/** GPUs of a job. */
export interface GpusAsked {
  /** Any of these; any at all without. */
  models?: string[];
  /** 1 without. */
  count?: number;
  /** MiB that each shows at least. */
  vramMib?: number;
  /** Of each device, in thousandths: 1000 without. */
  share?: number;
}

/** A job. Money is lovelace, time milliseconds, memory MiB, CPU thousandths of a core. */
export interface JobAsked {
  /** `NAME@sha256:…`, or a name with the tag `local` that a provider announces. */
  image: string;
  /** Without it the image's own. */
  command?: string[];
  name?: string;
  /** `job` ends by itself, `service` is stopped; `job` without. */
  kind?: "job" | "service";
  cpuMilli?: number;
  memoryMib?: number;
  diskMib?: number;
  gpu?: GpusAsked;
  env?: { [name: string]: string };
  /** Values by the name of the variable; each is sealed to the provider's key, and stands in nothing that is posted. */
  secrets?: { [name: string]: string };
  /** Bytes by their path below /workspace. */
  files?: { [path: string]: Uint8Array | string };
  ports?: { port: number; auth: "token" | "public"; direct?: true }[];
  /** Where it may connect to: nowhere without. */
  egress?: "open" | string[];
  /** Paths below /workspace that come back. */
  outputs?: string[];
  regions?: string[];
  /** Keys of the only providers that will do, and of those that will not. */
  providers?: string[];
  notProviders?: string[];
  labels?: { [name: string]: string };
  /** The most that it may ever cost, retries included. */
  budget: number;
  /** The most that one device, or core, may cost: micro-lovelace a second. */
  maxRateMicro?: number;
  maxDurationMs: number;
  /** How often it may go on at another provider when one is lost; never without. */
  retries?: number;
  /** Whether it waits for a place. */
  queue?: boolean;
}

/** A job as it is posted, with the bytes of its files by their hash. */
export interface Made {
  spec: JobSpec;
  blobs: Map<string, Uint8Array>;
  secrets: { [name: string]: string };
}

type Offer = components["schemas"]["Offer"];

const DIGEST = /^sha256:[0-9a-f]{64}$/;
const PINNED = /^[a-z0-9.-]+(?::[0-9]{1,5})?(?:\/[a-z0-9._-]+)+@sha256:[0-9a-f]{64}$/;
const MODE = 0o644;

/** *asked* in the form that is posted; *offers* are looked at for a local image. IMAGE_NOT_PINNED, JOB_BAD_VALUE, POOL_KEY_REFUSED. */
export async function specOf(asked: JobAsked, offers: () => Promise<Offer[]>): Promise<Made> {
  const { files, blobs } = filesOf(asked.files ?? {});
  const { image, labels } = await imageOf(asked.image, offers);
  const cores = !asked.gpu;
  const rate = whole("maxRateMicro", asked.maxRateMicro ?? 0);
  const spec: JobSpec = {
    version: 2,
    name: asked.name ?? "job",
    kind: asked.kind ?? "job",
    image,
    command: asked.command ?? [],
    resources: [{
      cpu: { least: whole("cpuMilli", asked.cpuMilli ?? 1000) }, memory: { least: whole("memoryMib", asked.memoryMib ?? 512) },
      disk: { least: whole("diskMib", asked.diskMib ?? 0) }, ...(asked.gpu && { gpu: gpuOf(asked.gpu) }),
    }],
    env: asked.env ?? {},
    secrets: Object.keys(asked.secrets ?? {}),
    files,
    ports: asked.ports ?? [],
    ...(asked.egress && { egress: asked.egress }),
    outputs: asked.outputs ?? [],
    placement: {
      regions: asked.regions ?? [], isolation: "container", min_trust: 0, labels: { ...asked.labels, ...labels },
      providers: asked.providers ?? [], not_providers: asked.notProviders ?? [],
    },
    price: { max_gpu_rate: cores ? 0 : rate, max_core_rate: cores ? rate : 0, budget: whole("budget", asked.budget, 1) },
    policy: {
      max_duration_ms: whole("maxDurationMs", asked.maxDurationMs, 1), retry_on: asked.retries ? ["provider_lost"] : [],
      retry_max: whole("retries", asked.retries ?? 0), idle_gpu_below: 0, idle_for_ms: 0, queue: asked.queue ?? false, priority: 0,
    },
  };
  keepsPoolKeys(asked);
  return { spec, blobs, secrets: asked.secrets ?? {} };
}

/** POOL_KEY_REFUSED for what would hand a block producer's key to whoever owns the host. */
function keepsPoolKeys({ files = {}, env = {}, secrets = {}, command = [] }: JobAsked): void {
  const places: [string, { [name: string]: Uint8Array | string }][] =
    [["file", files], ["env", env], ["secret", secrets], ["argument", Object.fromEntries(command.map((word, at) => [at + 1, word]))]];
  for (const [what, values] of places) {
    for (const [name, value] of Object.entries(values)) {
      const held = poolKeyIn(value);
      if (held) throw new Refusal(POOL_KEY_REFUSED, `${what} ${name} holds ${held}`, REMEDY);
    }
  }
}

/** What is signed is reckoned in whole numbers alone. */
function whole(name: string, value: number, least = 0): number {
  if (Number.isSafeInteger(value) && value >= least) return value;
  throw new Refusal("JOB_BAD_VALUE", `${name} is ${value}`, `${name} is a whole number, ${least} or more`);
}

function gpuOf({ models = [], count = 1, vramMib = 0, share = 1000 }: GpusAsked): GpuNeed {
  const many = whole("gpu.count", count, 1);
  return { models, count: { least: many, most: many }, vram: { least: whole("gpu.vramMib", vramMib) }, share: whole("gpu.share", share, 1) };
}

function filesOf(given: { [path: string]: Uint8Array | string }): { files: FileIn[]; blobs: Map<string, Uint8Array> } {
  const blobs = new Map<string, Uint8Array>();
  const files = Object.entries(given).map(([dst, content]) => {
    const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content;
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    blobs.set(sha256, bytes);
    return { dst, sha256, size: bytes.length, mode: MODE };
  });
  return { files, blobs };
}

/** The image by its digest. A local one is bound to the offers that announce what most of them do. */
async function imageOf(image: string, offers: () => Promise<Offer[]>): Promise<{ image: string; labels: { [name: string]: string } }> {
  if (DIGEST.test(image) || PINNED.test(image)) return { image, labels: {} };
  if (!image.endsWith(":local")) throw new Refusal("IMAGE_NOT_PINNED", `${image} names no digest`, "write the registry, the name and the digest: docker.io/library/python@sha256:… (`docker buildx imagetools inspect NAME` prints it)");
  const label = `image/${image}`;
  const counts = new Map<string, number>();
  for (const { labels } of await offers()) {
    const digest = labels[label];
    if (digest && DIGEST.test(digest)) counts.set(digest, (counts.get(digest) ?? 0) + 1);
  }
  const [first] = [...counts].sort(([, a], [, b]) => b - a);
  if (!first) throw new Refusal("IMAGE_NOT_PINNED", `no provider here announces ${image}`, "name an image by its digest, or one that a provider announces");
  return { image: first[0], labels: { [label]: first[0] } };
}
