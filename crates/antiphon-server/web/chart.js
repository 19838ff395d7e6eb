// Draws small charts as SVG: lines and stacked areas over time, with a crosshair that reads values out, by pointer and by keyboard.

import { csv, h, panel, put, s } from "./dom.js";
import { figure, shortTime, time } from "./format.js";

export const COLORS = ["var(--c0)", "var(--c1)", "var(--c2)", "var(--c3)", "var(--c4)", "var(--c5)", "var(--c6)", "var(--c7)"];
/** A team's color is its place among the shown by name: the same on every page, and while numbers change. */
export const teamColors = (names) => new Map([...names].sort((a, b) => a.localeCompare(b)).map((name, index) => [name, COLORS[index % COLORS.length]]));
/** Lines are told apart by their dashes as well. */
export const DASHES = ["", "6 3", "2 2", "8 3 2 3", "1 3", "10 4", "4 1", "3 5"];

/** Round values between two ends, few of them. */
export function ticks(low, high, most) {
  if (!(high > low)) return [low];
  const rough = (high - low) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((size) => size >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(Math.abs(value) < step * 1e-9 ? 0 : value);
  return found;
}

const STEPS_MS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800].map((sec) => sec * 1000);

/** Times at full minutes, hours or days, in local time. */
export function timeTicks(from, until, most) {
  const step = STEPS_MS.find((size) => (until - from) / size <= most) || 604800000;
  const zone = new Date(from).getTimezoneOffset() * 60000;
  const found = [];
  for (let at = Math.ceil((from - zone) / step) * step + zone; at <= until; at += step) found.push(at);
  return found;
}

const tickTime = (at, from, until) => {
  const text = time(at);
  return until - from < 600000 ? text.slice(-8) : shortTime(at);
};

/** The x axis of a chart or a picture: times below a line. */
export function axis(x, from, until, y, width) {
  const group = s("g", null, s("path", { class: "axis", d: `M${x(from)} ${y}H${x(until)}` }));
  for (const at of timeTicks(from, until, Math.max(2, Math.floor(width / 90)))) {
    group.append(s("text", { x: x(at), y: y + 14, "text-anchor": "middle" }, tickTime(at, from, until)));
  }
  return group;
}

/** A line through points; a gap where one has no value. */
export function path(points, x, y) {
  let d = "";
  let pen = false;
  for (const [at, value] of points) {
    if (value === null || value === undefined || Number.isNaN(value)) { pen = false; continue; }
    d += `${pen ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = true;
  }
  return d;
}

export function area(points, x, y) {
  if (!points.length) return "";
  const up = points.map(([at, , high]) => `${x(at).toFixed(1)} ${y(high).toFixed(1)}`);
  const back = [...points].reverse().map(([at, low]) => `${x(at).toFixed(1)} ${y(low).toFixed(1)}`);
  return `M${up.join("L")}L${back.join("L")}Z`;
}

/** The newest entry that is not behind a time. */
export function before(points, at) {
  let low = 0;
  let high = points.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] <= at) low = middle + 1;
    else high = middle;
  }
  return points[low - 1];
}

/** Follows the pointer and the arrow keys over a chart: `read(at)` fills the readout, `null` when it leaves. */
export function crosshair(svg, left, right, top, bottom, scale, read) {
  const line = s("path", { class: "cross", visibility: "hidden", "pointer-events": "none" });
  svg.append(line);
  let at = null;
  const show = (value) => {
    at = value;
    if (value === null) line.setAttribute("visibility", "hidden");
    else {
      line.setAttribute("d", `M${scale(value)} ${top}V${bottom}`);
      line.setAttribute("visibility", "visible");
    }
    read(value);
  };
  const invert = (px) => {
    const part = Math.min(1, Math.max(0, (px - left) / (right - left)));
    return scale.from + part * (scale.until - scale.from);
  };
  svg.addEventListener("pointermove", (event) => show(invert(event.clientX - svg.getBoundingClientRect().left)));
  svg.addEventListener("pointerleave", () => show(null));
  svg.addEventListener("blur", () => show(null));
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const from = at === null ? scale.until : at;
    show(Math.min(scale.until, Math.max(scale.from, from + step * (scale.until - scale.from) / 60)));
  });
}

export function scaleX(from, until, left, right) {
  const scale = (at) => left + ((at - from) / Math.max(1, until - from)) * (right - left);
  scale.from = from;
  scale.until = until;
  return scale;
}

/** Draws again when the place for it changes its width. */
function fitted(node, draw) {
  let width = 0;
  const look = new ResizeObserver(([entry]) => {
    const next = Math.round(entry.contentRect.width);
    if (next && next !== width) {
      width = next;
      draw(width);
    }
  });
  look.observe(node);
  return () => { if (width) draw(width); };
}

/**
 * A chart over time in a panel. `data()` gives `{series: [{name, points: [[ms, value]]}], unit, redline, from, until, stacked, steps}`; with
 * `steps` a value holds since the one before.
 * Returns `{node, draw}`.
 */
export function timeChart(title, name, height, data, note) {
  const holder = h("div");
  const readout = h("div", { class: "readout", "aria-live": "polite" });
  const rows = () => {
    const { series } = data();
    const times = [...new Set(series.flatMap((one) => one.points.map(([at]) => at)))].sort((a, b) => a - b);
    const maps = series.map((one) => new Map(one.points));
    return [["time", ...series.map((one) => one.name)], ...times.map((at) => [new Date(at).toISOString(), ...maps.map((map) => map.get(at))])];
  };
  const draw = fitted(holder, (width) => {
    const { series, unit, redline, from, until, stacked, steps, digits } = data();
    const show = digits || figure;
    const [left, right, top, bottom] = [44, width - 4, 6, height - 20];
    if (!series.some((one) => one.points.filter(([, value]) => value !== null).length > 1)) {
      put(holder, h("div", { class: "empty" }, "Not enough has been seen yet to draw a line."));
      return;
    }
    const drawn = stacked ? stack(series) : series.map((one) => ({ ...one, line: one.points }));
    if (steps) for (const one of drawn) one.line = stepped(one.line);
    const values = drawn.flatMap((one) => one.line.map((point) => point[point.length - 1])).filter((value) => value !== null && value !== undefined);
    const high = Math.max(...values, redline || 0) * 1.06 || 1;
    const low = stacked ? 0 : Math.min(0, ...values);
    const x = scaleX(from, until, left, right);
    const y = (value) => bottom - ((value - low) / (high - low)) * (bottom - top);
    const svg = s("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, height, role: "img", tabindex: 0, "aria-label": `${title}. Arrow keys read values.` });
    for (const value of ticks(low, high, 3)) {
      svg.append(s("path", { class: "axis", d: `M${left} ${y(value)}H${right}` }), s("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, show(value)));
    }
    svg.append(axis(x, from, until, bottom, right - left));
    drawn.forEach((one, index) => {
      const color = one.color || COLORS[index % COLORS.length];
      if (stacked) svg.append(s("path", { d: area(one.line, x, y), fill: color, "fill-opacity": one.faint ? 0.35 : 0.85, stroke: "var(--panel)", "stroke-width": 0.5 }));
      else svg.append(s("path", { d: path(one.line, x, y), fill: "none", stroke: color, "stroke-width": 1.75, "stroke-linejoin": "round", "stroke-dasharray": DASHES[index % DASHES.length] }));
    });
    if (redline) svg.append(s("path", { class: "redline", d: `M${left} ${y(redline)}H${right}` }));
    crosshair(svg, left, right, top, bottom, x, (at) => {
      if (at === null) { put(readout, legend(drawn, stacked)); return; }
      const parts = drawn.map((one) => {
        const found = steps ? one.points.find(([of]) => of >= at) : before(one.points, at);
        return h("span", null, `${one.name} `, h("b", null, found ? `${show(found[1])}${unit ? ` ${unit}` : ""}` : "–"));
      });
      put(readout, h("span", null, time(at)), parts);
    });
    put(readout, legend(drawn, stacked));
    put(holder, svg);
  });
  return { node: panel(title, [note, csv(name, rows)], h("div", { class: "body" }, readout, holder)), draw };
}

function legend(series, stacked) {
  if (series.length < 2) return [];
  return h("div", { class: "legend" }, series.map((one, index) => h("span", null, key(one.color || COLORS[index % COLORS.length], stacked ? null : DASHES[index % DASHES.length], one.faint), one.name)));
}

/** A legend's sign: a square for an area, a piece of line for a line. */
export function key(color, dash, faint) {
  if (dash === null || dash === undefined) return s("svg", { width: 10, height: 10, "aria-hidden": "true" }, s("rect", { width: 10, height: 10, rx: 2, fill: color, "fill-opacity": faint ? 0.35 : 0.85 }));
  return s("svg", { width: 18, height: 8, "aria-hidden": "true" }, s("path", { d: "M0 4H18", stroke: color, "stroke-width": 2, "stroke-dasharray": dash }));
}

/** Lets each value hold since the one before it: between two samples nothing slopes, and the newest is that of now. */
const stepped = (line) => line.flatMap((point, index) => (index ? [[line[index - 1][0], ...point.slice(1)], point] : [point]));

/** Puts series upon each other; all have the same times. */
function stack(series) {
  const base = new Map();
  return series.map((one) => {
    const line = one.points.map(([at, value]) => {
      const low = base.get(at) || 0;
      const high = low + (value || 0);
      base.set(at, high);
      return [at, low, high];
    });
    return { ...one, line };
  });
}

/** A small line without axes. */
export function sparkline(points, redline, label) {
  const [width, height] = [240, 30];
  const values = points.map(([, value]) => value).filter((value) => value !== null);
  if (values.length < 2) return s("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" });
  const high = Math.max(...values, redline || 0) || 1;
  const low = Math.min(...values, redline === undefined || redline === null ? Infinity : redline, 0);
  const x = scaleX(points[0][0], points[points.length - 1][0], 0, width);
  const y = (value) => height - 2 - ((value - low) / (high - low || 1)) * (height - 4);
  return s("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, height, preserveAspectRatio: "none", role: "img", "aria-label": label },
    redline === undefined || redline === null ? null : s("path", { class: "redline", d: `M0 ${y(redline)}H${width}`, "vector-effect": "non-scaling-stroke" }),
    s("path", { d: path(points, x, y), fill: "none", stroke: "var(--accent)", "stroke-width": 1.5, "vector-effect": "non-scaling-stroke" }));
}
