// What the pages of this browser tell the one tab that pays, and what it tells them: types alone.

/**
 * @import { Bytes } from "../crypto/bytes.js"
 * @import { Stage } from "../money/records.js"
 */

/**
 * To whichever tab pays. `watch`: a channel was opened. `lease`: its terms are about to be signed. `over`: it will
 * have no receipt. `cap`: earlier leases of a job get no more than *most* together. `twice`: the key has a second
 * output.
 * @typedef {{do: "watch" | "finish" | "twice", id: string} |
 *   {do: "lease", id: string, lease: string, terms: Bytes, adapterSignature: Bytes, cap: bigint, aheadMs: number} |
 *   {do: "over", id: string, lease: string} |
 *   {do: "cap", job: string, lease: string, most: bigint} |
 *   {do: "topped", id: string, amount: number | bigint} |
 *   {do: "ahead", id: string, lease: string, ms: number}} Order
 */

/** @typedef {Order & {name: string, token: string}} Named an order that is said again until *name* was taken */

/**
 * From the tab that pays.
 * @typedef {{what: "paying", channels: number} | {what: "took", name: string} |
 *   {what: "tick", id: string, lease: string, job: string, seq: number | bigint, unitMs: number | bigint,
 *     approved: bigint, signed: bigint} |
 *   {what: "note", id: string, code: string, kept?: bigint, message?: string} |
 *   {what: "stage", id: string, lease: string, job: string, stage: Stage} |
 *   {what: "ahead", id: string, lease: string, signed: bigint} | {what: "end", id: string, signed: bigint} |
 *   {what: "link", up: boolean} | {what: "refused", code: string, message: string} |
 *   {what: "fault", message: string}} Said
 */

export {}; // what makes it a module
