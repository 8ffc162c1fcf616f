// Small live charts as inline SVG: a tally stick of ticks, and lines over time.

import { byId, the } from "./dom.js";

const W = 600;
const KEPT = 600;
const SVG = "http://www.w3.org/2000/svg";

/** @type {(name: string, attributes: {[name: string]: string | number}) => Element} */
const shape = (name, attributes) => {
  const el = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) el.setAttribute(key, String(value));
  return el;
};

/**
 * Points of `[x, y]` as a path in the box; *most* is the top of the scale.
 * @param {[number, number][]} points
 * @param {number} most
 * @returns {string}
 */
export function path(points, most, height = 120) {
  const [from, to] = [points[0]?.[0], points.at(-1)?.[0]];
  if (from === undefined || to === undefined || points.length < 2 || !most) return "";
  const place = (/** @type {[number, number]} */ [x, y]) => `${(((x - from) / (to - from || 1)) * W).toFixed(1)},${(height - 3 - (y / most) * (height - 8)).toFixed(1)}`;
  return `M${points.map(place).join("L")}`;
}

/** A line with its area under it, and a dashed line at *cap* if it is near. */
export class Line {
  /** @param {Element} svg */
  constructor(svg, { most = 0, height = 120 } = {}) {
    this.fixed = most;
    this.height = height;
    /** @type {[number, number][]} */
    this.points = [];
    this.top = 0;
    this.span = 0;
    for (const y of [0.25, 0.5, 0.75]) svg.append(shape("line", { class: "grid", x1: 0, x2: W, y1: y * height, y2: y * height }));
    this.area = svg.appendChild(shape("path", { class: "area" }));
    this.line = svg.appendChild(shape("path", { class: "line" }));
  }

  /**
   * @param {number} x
   * @param {number} y
   */
  add(x, y) {
    const last = this.points.at(-1);
    if (last && x <= last[0]) return;
    this.points.push([x, y]);
    if (this.points.length > KEPT) this.points.shift();
    const most = this.fixed || Math.max(...this.points.map(([, value]) => value)) * 1.1;
    this.top = most;
    this.span = x - (this.points[0]?.[0] ?? x);
    const drawn = path(this.points, most, this.height);
    this.line.setAttribute("d", drawn);
    this.area.setAttribute("d", drawn && `${drawn}L${W},${this.height}L0,${this.height}Z`);
  }
}

/** One notch for each tick, every fifth across the others, as tallies are kept. */
export class Stick {
  /** @param {Element} svg */
  constructor(svg) {
    this.svg = svg;
    this.seen = 0;
    svg.append(shape("rect", { class: "wood", x: 1, y: 6, width: W - 2, height: 28, rx: 4 }));
  }

  /**
   * The stick shows the last hundred of *ticks*; new ones are cut in, unless they are not *live*.
   * @param {number} ticks
   */
  show(ticks, live = true) {
    if (ticks === this.seen) return;
    this.svg.querySelectorAll(".notch").forEach((notch) => notch.remove());
    const shown = Math.min(ticks, 100);
    for (let i = 0; i < shown; i++) {
      const number = ticks - shown + i + 1;
      const fresh = live && number > this.seen && this.seen ? " fresh" : "";
      const x = 8 + i * 5.9;
      const fifth = number % 5 === 0;
      this.svg.append(shape("line", { class: `notch${fresh}`, x1: fifth ? x - 21 : x, x2: x, y1: fifth ? 30 : 10, y2: fifth ? 10 : 30 }));
    }
    this.seen = ticks;
  }
}

/**
 * A chart of the page that is hidden until something is drawn in it.
 * @template {object} T
 */
export class Chart {
  /**
   * @param {string} name
   * @param {(svg: Element) => T} made
   */
  constructor(name, made) {
    this.name = name;
    this.made = made;
    /** @type {T | undefined} */
    this.drawn = undefined;
  }

  /** @returns {T} */
  shown() {
    byId("charts").hidden = false;
    this.drawn ??= this.made(the(`chart-${this.name}`, SVGElement));
    return this.drawn;
  }
}
