// What this browser keeps: one book for each channel that it pays, with its session key.
//
// A session key is random and made *non-extractable*: the browser signs with it, and no script reads it,
// so nothing is there to steal. A book is written before anything that it says is sent.

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

const STORE = "channels";
/** @type {Promise<IDBDatabase> | undefined} */
let opened;

/** @returns {Promise<IDBDatabase>} */
function database() {
  opened ??= new Promise((done, failed) => {
    const request = indexedDB.open("tally", 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "id" });
    request.onsuccess = () => done(request.result);
    request.onerror = () => failed(request.error);
  });
  return opened;
}

/**
 * @template T
 * @param {IDBTransactionMode} mode
 * @param {(store: IDBObjectStore) => IDBRequest<T>} work
 * @returns {Promise<T>}
 */
async function run(mode, work) {
  const db = await database();
  return new Promise((done, failed) => {
    const transaction = db.transaction(STORE, mode, { durability: "strict" });
    const request = work(transaction.objectStore(STORE));
    transaction.oncomplete = () => done(request.result);
    transaction.onerror = transaction.onabort = () => failed(transaction.error);
  });
}

/**
 * `{id, privateKey, account, job, spec, state, leases, …}`; see payer.js for a book's fields.
 * @type {(book: Stored) => Promise<IDBValidKey>}
 */
export const keep = (book) => run("readwrite", (store) => store.put(book));
/** @type {(id: string) => Promise<Stored | undefined>} */
export const load = (id) => run("readonly", (store) => store.get(id));
/** @type {() => Promise<Stored[]>} */
export const all = () => run("readonly", (store) => store.getAll());
/** @type {(id: string) => Promise<undefined>} */
export const forget = (id) => run("readwrite", (store) => store.delete(id));

/**
 * Whether the channel of *book* is open: the book then has all that receipts are answered from.
 * @type {(book: Stored | undefined) => book is Paying}
 */
export const isOpen = (book) => book?.state === "OPEN";

/** Books of channels that are open: they may have to sign, or be used again. */
export const open = async () => (await all()).filter(isOpen);
