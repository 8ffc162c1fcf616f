// What the market's API answers, as far as these pages read it (docs/api.md has all of it). Types alone: the
// market is not believed because of them, and what is signed or paid is judged from its own bytes.

/** @import { PostedSpec } from "../money/jobspec.js" */

/**
 * @typedef {object} QuoteView a quote that waits for its consumer
 * @property {string} terms hex of the bytes that both sides sign
 * @property {string} adapter_signature
 * @property {string} session_vk
 * @property {"fresh" | "reused"} channel
 * @property {JobFees | null} [fees] the chain's, in lovelace; markets of before say none
 * @property {RouteFees | null} [routed] the market's router's in their place
 * @property {{keep_most_ms?: number, allowance?: number, minimum?: number} | null} [offer] by its provider's word: the longest that an idle channel is kept open, what is served before its first block, and the least that a job on a new one must be able to cost
 * @property {ExpectedStart | null} [expected_start]
 */

/** @typedef {{consumer: number, provider: number, together: number, top_up: number, smallest: number}} JobFees lovelace; docs/api.md */
/** @typedef {{carried: boolean, route_bps: number, fee: number, hop_fee: number}} RouteFees lovelace; docs/api.md */

/**
 * @typedef {object} JobView
 * @property {string} id
 * @property {JobState} state
 * @property {string} reason
 * @property {PostedSpec} spec
 * @property {number} spent lovelace
 * @property {QuoteView | null} quote
 */

/** @typedef {"POSTED" | "QUEUED" | "QUOTED" | "STARTING" | "RUNNING" | "PAUSED" | "ENDING" | "ENDED"} JobState */

/**
 * @typedef {object} LeaseView
 * @property {string} state
 * @property {string} reason
 */

/**
 * @typedef {object} ChannelView
 * @property {string} session_vk
 * @property {string} state
 * @property {string} open_tx
 */

/**
 * @typedef {object} ReceiptRow a receipt as the market kept it
 * @property {string} lease
 * @property {number} seq
 * @property {string} body
 * @property {string} signature
 * @property {number} at_ms
 * @property {number} lease_owed
 */

/** @typedef {{cbor: string}} Built an unsigned transaction */
/** @typedef {{tick: number, unit_ms: number, spent: number, owed?: number, at_ms: number}} TickEvent */
/** @typedef {{at_ms: number, util_permille?: number, memory_mib?: number, temperature_c?: number}} Sample */

/**
 * *ms* until the workload runs; *pull_bytes*: what the host lacks of the image, packed, null where nobody knows; *bytes_s*: its last pulls' rate, 0 where it told of none.
 * @typedef {{ms: number, here: boolean, pull_bytes: number | null, bytes_s: number}} ExpectedStart
 */

/**
 * @typedef {object} Estimate what a job would cost now
 * @property {number} rate_micro
 * @property {number} units_milli
 * @property {import("../money/kinds.js").Resource} resource
 * @property {string} device
 * @property {boolean} simulated
 * @property {string} provider
 * @property {number} ceiling
 * @property {JobFees | null} [fees]
 * @property {RouteFees | null} [routed]
 * @property {number} [minimum]
 * @property {number} [allowance]
 * @property {ExpectedStart | null} [expected_start]
 * @property {{provider: string, rate_micro: number, why: string}[]} alternatives
 */

/**
 * @typedef {object} NoMatch why nothing matches
 * @property {string} text
 * @property {number} hosts
 * @property {{[code: string]: number}} reasons hosts that each rules out
 * @property {{[code: string]: string}} words
 * @property {{change: string, hosts: number, rate_micro_per_s: number}[]} relaxations
 */

/** @typedef {{matches: true, quote: Estimate} | {matches: false, explain: NoMatch}} Explained */

export {}; // what makes it a module
