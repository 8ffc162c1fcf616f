// Before the first paint: the reader's choice of light or dark, if one was made.
(() => {
  const chosen = localStorage.getItem("tally-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
