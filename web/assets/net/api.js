// The API of the market that serves this page, with the session's token.

import { Api } from "./http.js";

/** @import { CallOptions } from "./http.js" */

export { pause, Problem } from "./http.js";

const TOKEN = "tally-token";

export const token = () => localStorage.getItem(TOKEN) ?? "";
/** @type {(value: string) => void} */
export const keepToken = (value) => localStorage.setItem(TOKEN, value);
export const dropToken = () => localStorage.removeItem(TOKEN);

export const market = new Api("", token);

/** @type {Api["call"]} */
export const call = (method, path, body, options) => market.call(method, path, body, options);
/** @type {(path: string, options?: CallOptions) => Promise<any>} */
export const get = (path, options) => market.get(path, options);
/** @type {(path: string) => Promise<string>} */
export const getText = (path) => market.getText(path);
/** @type {(path: string, body?: unknown, options?: CallOptions) => Promise<any>} */
export const post = (path, body, options) => market.post(path, body, options);
/** @type {Api["events"]} */
export const events = (path, signal) => market.events(path, signal);
