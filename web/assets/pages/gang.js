// A gang's page: what its members print is followed to its end, unless the reader scrolled away from it.

import { byId } from "../ui/dom.js";

/** Called with every page of a gang. */
export function start() {
  const log = byId("log");
  const toEnd = () => { log.scrollTop = log.scrollHeight; };
  let atEnd = true;
  log.addEventListener("scroll", () => { atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40; });
  new MutationObserver(() => { if (atEnd) toEnd(); }).observe(log, { childList: true });
  toEnd(); // its end is the news
}
