// What agreeing to a quote and a channel's steps stand on: types alone. The browser's is in browser.js.

/**
 * @import { Door } from "../chain/door.js"
 * @import { Stored, Vault } from "../money/books.js"
 * @import { Api } from "../net/http.js"
 * @import { Order } from "../paying/orders.js"
 * @import { WalletApi } from "./cip30.js"
 */

/**
 * @typedef {object} Ground
 * @property {Api} market
 * @property {number} magic of its network
 * @property {Vault} vault
 * @property {(order: Order) => Promise<void>} order to whoever pays; on disk once it returns
 * @property {() => Promise<WalletApi>} connect
 * @property {() => Promise<Door | null>} door
 * @property {(name: string, work: () => Promise<void>) => Promise<void>} alone *work* waits for others of that name
 * @property {(posted: Stored) => Promise<{[name: string]: string}>} secrets what is known of a posted job's values
 */

export {}; // what makes it a module
