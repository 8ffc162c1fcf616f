// The books of this browser (books.js), one for each channel that it pays, with its session key.
//
// A session key is random and made *non-extractable*: the browser signs with it, and no script reads it,
// so nothing is there to steal. A book is written before anything that it says is sent.

import { isOpen } from "./books.js";

/** @import { Stored } from "./books.js" */

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

/** Books of channels that are open: they may have to sign, or be used again. */
export const open = async () => (await all()).filter(isOpen);
