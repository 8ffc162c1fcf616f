// What a payer keeps: one book for each channel, which is written before anything that it says is sent.

/**
 * @import { Book } from "./payer.js"
 * @import { Bytes } from "../crypto/bytes.js"
 * @import { PostedSpec } from "./jobspec.js"
 * @import { Locked } from "../crypto/seal.js"
 */

/**
 * What the wallet and the session key signed, until market and provider have all of it.
 * @typedef {object} Begun
 * @property {string} lease
 * @property {string} signature of the terms
 * @property {{[name: string]: string}} secrets in boxes
 * @property {string} tx
 * @property {string} witness
 * @property {string} [open] the signed transaction, for a provider that serves before a block holds it
 */

/**
 * A book as it is kept: NEW from the posting, OPENING once the wallet has signed, OPEN while the channel pays.
 * @typedef {object} Kept
 * @property {string} id hex of the session key
 * @property {CryptoKey} privateKey which no script reads
 * @property {"NEW" | "OPENING" | "OPEN" | "ENDED"} state
 * @property {string} account
 * @property {number} [made] when, in milliseconds
 * @property {string} [job] that it was posted with
 * @property {PostedSpec} [spec] as it was posted
 * @property {Locked | null} [locked] values of secrets that wait for the provider's key
 * @property {boolean} [keep] for a next job
 * @property {number} [keepMs] for how long once it is idle; a book of before has none, and is kept until it is finished by hand
 * @property {string} [openTx]
 * @property {Begun | null} [begun] what the wallet signed and the market has not confirmed
 * @property {{body: Bytes, signature: Bytes}} [evidence] the receipt for which nothing more is signed
 */

/** @typedef {Kept & Book} Paying a book from which receipts are answered */
/** @typedef {Kept & Partial<Book>} Stored */

/**
 * Where books are kept, by the hex of their session keys. What *keep* was given is on the disk once it returns.
 * @typedef {object} Vault
 * @property {(book: Stored) => Promise<unknown>} keep
 * @property {(id: string) => Promise<Stored | undefined>} load
 * @property {() => Promise<Stored[]>} all
 * @property {() => Promise<Paying[]>} open those of channels that are open: they may have to sign, or be used again
 * @property {(id: string) => Promise<unknown>} forget
 */

/**
 * Whether the channel of *book* is open: the book then has all that receipts are answered from.
 * @type {(book: Stored | undefined) => book is Paying}
 */
export const isOpen = (book) => book?.state === "OPEN";
