// Numbers and times as people read them. The same words and units as the command line.

import { h, s, ticked } from "./dom.js";

const grouped = new Intl.NumberFormat("en-US");
let skew = 0;
let simulation = null;
let learned = 0;

/** The time of the server, as far as its answers tell it, or that of the simulation which it shows. */
export const now = () => (simulation ? simulation.at_ms + (Date.now() - learned) * simulation.speed : Date.now() + skew);
/** What is simulated and how virtual time goes there; null on a real server. */
export const simulated = () => simulation;
export const setSimulation = (row) => { simulation = row; learned = Date.now(); };
export const setSkew = (ms) => { skew = Math.abs(ms) > 1500 ? ms : 0; };

export const count = (n) => grouped.format(n);
export const plural = (n, one, many) => `${count(n)} ${n === 1 ? one : many || `${one}s`}`;

/** Two units at most: `12s`, `3m20s`, `2h05m`, `4d02h`. */
export function span(ms) {
  const sec = Math.max(0, Math.floor(ms / 1000));
  const two = (n) => String(n).padStart(2, "0");
  if (sec < 60) return `${sec}s`;
  if (sec < 3600) return `${Math.floor(sec / 60)}m${two(sec % 60)}s`;
  if (sec < 86400) return `${Math.floor(sec / 3600)}h${two(Math.floor(sec / 60) % 60)}m`;
  return `${Math.floor(sec / 86400)}d${two(Math.floor(sec / 3600) % 24)}h`;
}

/** A span without the digits that a guess does not have. */
export const coarse = (ms) => (ms < 60000 ? `${Math.max(0, Math.round(ms / 1000))}s` : ms < 3600000 ? `${Math.floor(ms / 60000)}m` : span(ms));

export const gpuTime = (ms) => (ms < 360000 ? `${Math.floor(ms / 1000)} GPU-s` : `${(ms / 3600000).toFixed(ms < 36e7 ? 2 : 0).replace(/\B(?=(\d{3})+(?!\d))/g, ",")} GPU-h`);

export const gpus = (thousandths) => (thousandths % 1000 === 0 ? count(thousandths / 1000) : (thousandths / 1000).toFixed(3).replace(/0+$/, ""));

export function bytes(n) {
  for (const [name, size] of [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) if (n >= size) return `${(n / size).toFixed(1)} ${name}`;
  return `${n} B`;
}

/** A measured number with as many digits as it is worth. */
export function figure(n) {
  if (n === null || n === undefined || Number.isNaN(n)) return "–";
  const size = Math.abs(n);
  if (size >= 1e9) return `${(n / 1e9).toFixed(2)} G`;
  if (size >= 1e6) return `${(n / 1e6).toFixed(2)} M`;
  if (Number.isInteger(n) && size < 1e6) return count(n);
  if (size >= 1e4) return count(Math.round(n));
  if (size >= 100) return n.toFixed(0);
  if (size >= 1) return n.toFixed(size >= 10 ? 1 : 2);
  if (size === 0) return "0";
  return n.toPrecision(2);
}

export const dollars = (micros) => `$${micros < 1e9 ? (micros / 1e6).toFixed(2) : grouped.format(Math.round(micros / 1e6))}`;

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const shortClock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** Today, or so near that nobody takes it for another day: else all of an evening changes its look at midnight. */
const near = (ms) => Math.abs(now() - ms) < 12 * 3600000 || new Date(ms).toDateString() === new Date(now()).toDateString();

/** `14:05:09` today, `3 Dec 14:05` else. */
export const time = (ms) => (near(ms) ? clock.format(ms) : `${day.format(ms)} ${shortClock.format(ms)}`);
export const shortTime = (ms) => (near(ms) ? shortClock.format(ms) : `${day.format(ms)} ${shortClock.format(ms)}`);

/** A time as an element that says the whole of it when pointed at. */
export const at = (ms) => h("time", { datetime: new Date(ms).toISOString(), title: new Date(ms).toString() }, time(ms));

/** When a waiting job should start, in a few words. */
export function starts(start) {
  if (!start) return "";
  const until = (ms) => ms - now();
  const expected = until(start.expected_ms);
  const when = expected < 1000 ? "now" : `in ${coarse(expected)}`;
  if (!start.latest_ms) return `${when} at a guess`;
  const [early, late] = [coarse(Math.max(0, until(start.earliest_ms))), coarse(Math.max(0, until(start.latest_ms)))];
  return early === late ? when : `${when} (${early} to ${late})`;
}

/** Each state has a form of its own, so that color is not needed. */
const FORMS = {
  pending: ["var(--ink-3)", () => s("circle", { cx: 5, cy: 5, r: 4, fill: "none", stroke: "currentColor", "stroke-width": 1.5, "stroke-dasharray": "2 1.5" })],
  starting: ["var(--accent)", () => s("circle", { cx: 5, cy: 5, r: 4, fill: "none", stroke: "currentColor", "stroke-width": 2 })],
  running: ["var(--accent)", () => s("path", { d: "M1 0l9 5-9 5z", fill: "currentColor" })],
  resizing: ["var(--accent)", () => s("path", { d: "M0 5l4-4v8zM10 5l-4-4v8z", fill: "currentColor" })],
  stopping: ["var(--warn)", () => s("path", { d: "M1 1h3v8H1zM6 1h3v8H6z", fill: "currentColor" })],
  held: ["var(--asked)", () => s("path", { d: "M1 1h8v8H1z", fill: "none", stroke: "currentColor", "stroke-width": 2 })],
  succeeded: ["var(--good)", () => s("path", { d: "M1 5l3 3 5-6", fill: "none", stroke: "currentColor", "stroke-width": 2 })],
  failed: ["var(--bad)", () => s("path", { d: "M1 1l8 8M9 1L1 9", fill: "none", stroke: "currentColor", "stroke-width": 2 })],
  canceled: ["var(--ink-3)", () => s("path", { d: "M1 5h8", fill: "none", stroke: "currentColor", "stroke-width": 2 })],
};

export function state(name) {
  const [color, form] = FORMS[name] || FORMS.pending;
  return h("span", { class: "state" }, h("span", { style: { color } }, s("svg", { viewBox: "0 0 10 10", width: 10, height: 10, "aria-hidden": "true" }, form())), name);
}

export const WAYS = { decided: "▶", told: "◀", asked: "●", seen: "■" };
export const way = (name) => h("span", { class: `way ${name}` }, h("span", { "aria-hidden": "true" }, `${WAYS[name] || "·"} `), name);

export const jobLink = (id, name) => h("a", { href: `#/job/${encodeURIComponent(id)}` }, name || id);

/** A sentence about a job or a node, with its subject as a link where it has a page. */
export function sentence(told) {
  const subject = told.job ? [jobLink(told.job, told.name || told.job), told.name ? h("span", { class: "jobid" }, ` ${told.job}`) : null, " "] : told.name ? [h("b", null, told.name), " "] : [];
  return [subject, ticked(told.text)];
}
