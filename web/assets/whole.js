// A part of the page that did not arrive (the network changed, the market restarted): the page is
// loaded once more by itself; if that does not help, it says so, and stays as it is.
(() => {
  const KEY = "tally-loaded-again";
  const APART_MS = 30_000; // what fails again within this is not helped by a third try

  function incomplete() {
    if (Date.now() - Number(sessionStorage.getItem(KEY)) > APART_MS) {
      sessionStorage.setItem(KEY, String(Date.now()));
      location.reload();
      return;
    }
    const say = () => document.getElementById("incomplete")?.removeAttribute("hidden");
    if (document.readyState === "loading") addEventListener("DOMContentLoaded", say);
    else say();
  }

  addEventListener("error", ({ target }) => {
    if (target instanceof HTMLScriptElement || (target instanceof HTMLLinkElement && target.rel === "stylesheet")) incomplete();
  }, true); // that something did not load does not bubble
  addEventListener("tally-incomplete", incomplete);
})();
