// The ports of a job's workload: opened in a tab of their own, shared by a link.

import { post } from "../net/api.js";
import { byId, the } from "../ui/dom.js";
import { copy, wrong } from "../ui/live.js";

/** @type {(button: HTMLButtonElement) => string} */
const path = ({ dataset: { job = "", port = "" } }) => `/v1/jobs/${job}/ports/${port}`;

/** The tab is opened by the click itself, since browsers take none that is opened later. */
export async function openPort(/** @type {HTMLButtonElement} */ button) {
  const tab = window.open("", "_blank");
  if (tab) tab.opener = null; // a stranger's page is to know nothing of this one
  try {
    /** @type {{url: string}} */
    const { url } = await post(`${path(button)}/tickets`);
    if (tab) tab.location.replace(url);
    else location.assign(url);
  } catch (error) {
    tab?.close();
    throw error;
  }
  button.disabled = false;
}

export async function sharePort(/** @type {HTMLButtonElement} */ button) {
  const lasts = Number(the("share-for", HTMLSelectElement).value);
  /** @type {{url: string}} */
  const { url } = await post(`${path(button)}/links`, { lasts_ms: lasts });
  byId("shared").hidden = false;
  the("share-link", HTMLInputElement).value = url;
  const copier = the("share-copy", HTMLButtonElement);
  copier.onclick = () => copy(copier, url).catch(() => wrong("this browser does not let the page copy: select the text instead"));
  button.disabled = false;
}
