// A page of a workload, a port's or a service's: opened in a tab of its own, shared by a link.

import { post } from "../net/api.js";
import { byId, the } from "../ui/dom.js";
import { copy, wrong } from "../ui/live.js";

/** @type {(button: HTMLButtonElement) => string} */
const path = ({ dataset: { job = "", port = "" } }) => `/v1/jobs/${job}/ports/${port}`;

export async function openPort(/** @type {HTMLButtonElement} */ button) {
  await openAt(path(button));
  button.disabled = false;
}

export async function sharePort(/** @type {HTMLButtonElement} */ button) {
  await shareAt(path(button));
  button.disabled = false;
}

/** What *at* names; the tab is opened by the click itself, since browsers take none that is opened later. */
export async function openAt(/** @type {string} */ at) {
  const tab = window.open("", "_blank");
  if (tab) tab.opener = null; // a stranger's page is to know nothing of this one
  try {
    /** @type {{url: string}} */
    const { url } = await post(`${at}/tickets`);
    if (tab) tab.location.replace(url);
    else location.assign(url);
  } catch (error) {
    tab?.close();
    throw error;
  }
}

/** A link to what *at* names, in the page's place for it. */
export async function shareAt(/** @type {string} */ at) {
  const lasts = Number(the("share-for", HTMLSelectElement).value);
  /** @type {{url: string}} */
  const { url } = await post(`${at}/links`, { lasts_ms: lasts });
  byId("shared").hidden = false;
  the("share-link", HTMLInputElement).value = url;
  const copier = the("share-copy", HTMLButtonElement);
  copier.onclick = () => copy(copier, url).catch(() => wrong("this browser does not let the page copy: select the text instead"));
}
