// Parts of a page, by the names that its template gives them.

/** @typedef {{account: string, magic: number}} Reader who reads the page, and of which network it is */
/** @typedef {HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement} Control */

/**
 * The element *id*, of *Kind*; a page that has none is not the page that its script is for.
 * @template {Element} T
 * @param {string} id
 * @param {new () => T} Kind
 * @returns {T}
 */
export function the(id, Kind) {
  const found = document.getElementById(id);
  if (found instanceof Kind) return found;
  throw new Error(`this page has no ${id}`);
}

/** @type {(id: string) => HTMLElement} */
export const byId = (id) => the(id, HTMLElement);

/**
 * The control *name* of *form*, also where a form has a property of the same name, as `name` itself.
 * @param {HTMLFormElement} form
 * @param {string} name
 * @returns {Control}
 */
export function control(form, name) {
  const found = form.elements.namedItem(name);
  if (found instanceof HTMLInputElement || found instanceof HTMLTextAreaElement || found instanceof HTMLSelectElement) return found;
  throw new Error(`this form has no ${name}`);
}

/**
 * The button with *attribute* that a click was meant for, if it was.
 * @param {Event} event
 * @param {string} selector
 * @returns {HTMLElement | null}
 */
export function hit({ target }, selector) {
  return target instanceof Element ? target.closest(selector) : null;
}

/** The button that sends *form*. */
export function submitOf(/** @type {HTMLFormElement} */ form) {
  const found = form.querySelector("[type=submit]");
  if (found instanceof HTMLElement) return found;
  throw new Error("this form cannot be sent");
}
