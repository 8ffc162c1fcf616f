// What this browser keeps: one book for each channel that it pays, with its session key.
//
// A session key is random and made *non-extractable*: the browser signs with it, and no script reads it,
// so nothing is there to steal. A book is written before anything that it says is sent.

const STORE = "channels";
let opened;

function database() {
  opened ??= new Promise((done, failed) => {
    const request = indexedDB.open("tally", 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "id" });
    request.onsuccess = () => done(request.result);
    request.onerror = () => failed(request.error);
  });
  return opened;
}

async function run(mode, work) {
  const db = await database();
  return new Promise((done, failed) => {
    const transaction = db.transaction(STORE, mode, { durability: "strict" });
    const request = work(transaction.objectStore(STORE));
    transaction.oncomplete = () => done(request?.result);
    transaction.onerror = transaction.onabort = () => failed(transaction.error);
  });
}

/** `{id, privateKey, account, job, spec, state, leases, …}`; see payer.js for a book's fields. */
export const keep = (book) => run("readwrite", (store) => store.put(book));
export const load = (id) => run("readonly", (store) => store.get(id));
export const all = () => run("readonly", (store) => store.getAll());
export const forget = (id) => run("readwrite", (store) => store.delete(id));

/** Books of channels that are open: they may have to sign, or be used again. */
export const open = async () => (await all()).filter((book) => book.state === "OPEN");
