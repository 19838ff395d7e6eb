// The picture of a job: what antiphon decided above, what the training loop told below, and the run between them, on one axis of time.

import { COLORS, DASHES, area, axis, before, crosshair, key, path, scaleX, ticks } from "./chart.js";
import { h, put, s, tip } from "./dom.js";
import { WAYS, bytes, figure, span, time } from "./format.js";

const CURVES = [
  ["loss", "Loss", "nat", 120], ["grad_norm", "Gradient norm", "", 56, "Gradient"], ["step_ms", "Step time", "ms", 56],
  ["tokens_per_s", "Tokens a second", "", 56, "Tokens/s"], ["memory_peak_bytes", "Memory peak", "bytes", 56, "Memory"],
  ["micro_batch", "Rows at once", "", 40, "Rows"],
];
/** Kinds whose moment is drawn through the curves: cause and effect stand on it. */
const THROUGH = new Set(["finding", "directive", "stop", "start"]);
const FORMS = {
  start: (c) => s("path", { d: "M-5 -6L6 0L-5 6Z", fill: c }), stop: (c) => s("rect", { x: -5, y: -5, width: 10, height: 10, fill: c }),
  kill: (c) => s("path", { d: "M-5 -5L5 5M5 -5L-5 5", stroke: c, "stroke-width": 3 }), directive: (c) => s("path", { d: "M-6 -5H6L0 6Z", fill: c }),
  finding: (c) => s("path", { d: "M0 -7L7 0L0 7L-7 0Z", fill: c }), checkpoint: (c) => s("circle", { r: 4.5, fill: "var(--panel)", stroke: c, "stroke-width": 2.5 }),
  answer: (c) => s("path", { d: "M-5 0L-1 5L6 -5", fill: "none", stroke: c, "stroke-width": 2.5 }), ask: (c) => s("path", { d: "M-6 5H6L0 -6Z", fill: c }),
};
const dot = (c) => s("circle", { r: 4, fill: c });

/** Curves by name with time in place of steps, over all attempts that are kept. */
export function curvesOf(rows) {
  const clocks = new Map();
  const curves = new Map();
  const sorted = [...rows].filter(([name]) => name.startsWith("clock/") || name.startsWith("curve/")).sort((a, b) => (a[0] < b[0] ? -1 : 1));
  for (const [name, value] of sorted) {
    const [what, attempt, , ...rest] = name.split("/");
    if (what === "clock") clocks.set(attempt, (clocks.get(attempt) || []).concat(value));
  }
  for (const [name, value] of sorted) {
    const [what, attempt, , ...rest] = name.split("/");
    if (what !== "curve") continue;
    const clock = (clocks.get(attempt) || []).map(([at, step]) => [step, at]);
    const curve = rest.join("/");
    const points = curves.get(curve) || [];
    // A new attempt begins a new line.
    if (points.length && points[points.length - 1].attempt !== attempt) points.push({ at: when(clock, value[0][0]), step: null, mean: null, attempt });
    for (const [step, low, mean, high] of value) points.push({ at: when(clock, step), step, low, mean, high, attempt });
    curves.set(curve, points);
  }
  return curves;
}

/** When a step was made, between the two reports around it. */
function when(clock, step) {
  if (!clock.length) return 0;
  let low = 0;
  let high = clock.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (clock[middle][0] < step) low = middle + 1;
    else high = middle;
  }
  if (low === 0) return clock[0][1];
  if (low === clock.length) return clock[low - 1][1];
  const [[stepA, atA], [stepB, atB]] = [clock[low - 1], clock[low]];
  return atA + ((step - stepA) / Math.max(1, stepB - stepA)) * (atB - atA);
}

const shown = (name, value) => (name === "memory_peak_bytes" ? bytes(value) : figure(value));

/**
 * Draws the picture into a node. `model`: `{from, until, marks, bands, curves, budget}`; `pick(mark)` when one is chosen.
 */
export function draw(holder, readout, width, model, pick) {
  const { from, until, marks, bands, curves } = model;
  const narrow = width < 560;
  const LEFT = narrow ? 72 : 112;
  const right = width - (narrow ? 2 : 10);
  const x = scaleX(from, until, LEFT, right);
  const panels = CURVES.filter(([name]) => curves.has(name)).map(([name, title, unit, height, short]) => ({ title: narrow && short ? short : title, unit, height, name, lines: [{ name: title, points: curves.get(name), band: true }] }));
  const shards = [...curves].filter(([name]) => name.startsWith("shard/")).map(([name, points]) => ({ name: name.slice(6), points }));
  const probes = [...curves].filter(([name]) => name.startsWith("probe/")).map(([name, points]) => ({ name: name.slice(6), points }));
  if (shards.length) panels.splice(panels.length ? 1 : 0, 0, { title: narrow ? "By shard" : "Loss by shard", unit: "nat", height: 96, name: "shards", lines: shards, legend: true });
  if (probes.length) panels.push({ title: "Probes", unit: "nat", height: 72, name: "probes", lines: probes, legend: true });

  let y = 0;
  const lanes = {};
  lanes.decided = (y += 20);
  y += 18;
  const band = y;
  y += 34;
  for (const one of panels) {
    one.top = y + (one.legend ? 22 : 8);
    one.bottom = one.top + one.height;
    y = one.bottom + 10;
  }
  lanes.told = y + 16;
  const bottom = y + 34;
  const height = bottom + 22;
  const svg = s("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, height, tabindex: 0, role: "img", "aria-label": "Both directions on one axis of time. Arrow keys read values; the list below has every mark." });
  const clip = `clip-${Math.round(width)}`;
  svg.append(s("defs", null, s("clipPath", { id: clip }, s("rect", { x: LEFT, y: 0, width: Math.max(1, right - LEFT), height })),
    s("pattern", { id: "waits", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, s("path", { d: "M0 0V6", stroke: "var(--line-2)", "stroke-width": 2 }))));

  const label = (text, at, sub) => svg.append(s("text", { x: LEFT - 10, y: at, "text-anchor": "end" }, text), sub ? s("text", { x: LEFT - 10, y: at + 13, "text-anchor": "end", "font-size": 10 }, sub) : "");
  svg.append(s("text", { x: LEFT - 10, y: lanes.decided + 4, "text-anchor": "end", style: { fill: "var(--decided)", "font-weight": "600" } }, `${WAYS.decided} decided`));
  svg.append(s("text", { x: LEFT - 10, y: lanes.told + 4, "text-anchor": "end", style: { fill: "var(--told)", "font-weight": "600" } }, `${WAYS.told} told`));
  for (const [lane, color] of [["decided", "var(--decided)"], ["told", "var(--told)"]]) svg.append(s("rect", { x: LEFT, y: lanes[lane] - 14, width: Math.max(1, right - LEFT), height: 28, rx: 4, fill: color, "fill-opacity": 0.07 }));

  const inside = s("g", { "clip-path": `url(#${clip})` });
  svg.append(inside);
  label("attempts", band + 15);
  for (const one of bands) {
    const [a, b] = [Math.max(LEFT, x(one.from)), Math.max(x(one.from) + 1.5, x(one.until))];
    const waits = one.kind === "waits";
    inside.append(s("rect", { x: a, y: band, width: Math.max(1, b - a), height: 22, rx: 3, fill: waits ? "url(#waits)" : one.kind === "runs" ? "var(--accent-soft)" : "var(--warn-soft)", stroke: waits ? "var(--line-2)" : one.kind === "runs" ? "var(--accent)" : "var(--warn)", "stroke-dasharray": waits ? "3 3" : "" },
      s("title", null, one.title)));
    if (b - a > measured(one.text) + 14) inside.append(s("text", { x: a + 6, y: band + 15, style: { fill: waits ? "var(--ink-2)" : "var(--ink)" } }, one.text));
  }

  for (const mark of marks) {
    if (!THROUGH.has(mark.kind) || mark.at_ms < from) continue;
    inside.append(s("path", { d: `M${x(mark.at_ms).toFixed(1)} ${lanes.decided + 14}V${lanes.told - 14}`, stroke: `var(--${mark.way})`, "stroke-width": 1, opacity: 0.35, "stroke-dasharray": mark.way === "told" ? "3 3" : "" }));
  }

  for (const one of panels) {
    const values = one.lines.flatMap((line) => line.points).filter((point) => point.mean !== null && point.at >= from - 1).map((point) => point.mean);
    const extremes = one.lines[0].band ? one.lines[0].points.filter((point) => point.mean !== null && point.at >= from - 1).flatMap((point) => [point.low, point.high]) : [];
    const all = values.concat(extremes.length ? robust(extremes, values) : []);
    if (!all.length) continue;
    let [low, high] = [Math.min(...all), Math.max(...all)];
    if (one.name !== "loss" && one.name !== "shards" && one.name !== "probes") low = Math.min(low, 0);
    const pad = (high - low || Math.abs(high) || 1) * 0.08;
    low -= low === 0 ? 0 : pad;
    high += pad;
    const y1 = (value) => one.bottom - ((Math.min(high, Math.max(low, value)) - low) / (high - low)) * (one.bottom - one.top);
    one.y = y1;
    label(one.title, one.top + 10, one.unit === "bytes" ? "" : one.unit);
    for (const value of ticks(low, high, one.height > 80 ? 3 : 2)) {
      svg.append(s("path", { class: "axis", d: `M${LEFT} ${y1(value)}H${right}`, opacity: 0.7 }), s("text", { x: right, y: y1(value) - 3, "text-anchor": "end", "font-size": 10 }, shown(one.name, value)));
    }
    one.lines.forEach((line, index) => {
      const color = one.lines.length > 1 || one.legend ? COLORS[index % COLORS.length] : "var(--accent)";
      if (line.band) for (const part of split(line.points)) inside.append(s("path", { d: area(part.map((point) => [point.at, point.low, point.high]), x, y1), fill: color, "fill-opacity": 0.16 }));
      inside.append(s("path", { d: path(line.points.map((point) => [point.at, point.mean]), x, y1), fill: "none", stroke: color, "stroke-width": 1.6, "stroke-linejoin": "round", "stroke-dasharray": one.legend ? DASHES[index % DASHES.length] : "" }));
    });
    if (one.legend) {
      let left = LEFT;
      one.lines.forEach((line, index) => {
        const text = line.name.length > 22 ? `${line.name.slice(0, 21)}…` : line.name;
        const length = 26 + measured(text);
        if (left + length > right) return;
        const sign = key(COLORS[index % COLORS.length], DASHES[index % DASHES.length]);
        sign.setAttribute("x", left);
        sign.setAttribute("y", one.top - 17);
        svg.append(sign, s("text", { x: left + 22, y: one.top - 9 }, text));
        left += length + 8;
      });
    }
  }

  for (const [lane, ways] of [["decided", ["decided", "asked"]], ["told", ["told", "seen"]]]) {
    const near = [];
    for (const mark of marks) {
      if (!ways.includes(mark.way) || mark.at_ms < from || mark.at_ms > until) continue;
      const px = x(mark.at_ms);
      const group = near[near.length - 1];
      if (group && px - group.px < 11) group.marks.push(mark);
      else near.push({ px, marks: [mark] });
    }
    for (const group of near) {
      // What weighs most stands for those beside it.
      const first = group.marks.find((mark) => THROUGH.has(mark.kind)) || group.marks[0];
      const color = `var(--${first.way})`;
      const node = s("g", { class: "mark-glyph", transform: `translate(${group.px.toFixed(1)} ${lanes[lane]})`, "data-mark": `${first.seq}.${first.index}`, "data-kind": first.kind },
        s("circle", { r: 9, fill: "transparent" }), (FORMS[first.kind] || dot)(color));
      if (group.marks.length > 1) node.append(s("text", { x: 7, y: -5, "font-size": 9.5, style: { "font-weight": "600", fill: color } }, group.marks.length));
      const text = group.marks.slice(0, 6).map((mark) => `${time(mark.at_ms)} ${WAYS[mark.way]} ${mark.text}`).join("\n") + (group.marks.length > 6 ? `\nand ${group.marks.length - 6} more` : "");
      node.addEventListener("pointerenter", (event) => tip(text, event.clientX, event.clientY));
      node.addEventListener("pointerleave", () => tip(""));
      node.addEventListener("click", () => { tip(""); pick(first); });
      svg.append(node);
    }
  }

  svg.append(axis(x, from, until, bottom, right - LEFT));
  crosshair(svg, LEFT, right, 6, bottom, x, (at) => {
    if (at === null) { put(readout, h("span", { class: "muted" }, "Point at the picture to read values; choose a mark to find it in the conversation.")); return; }
    const parts = [h("span", null, time(at), until - at > 1000 ? ` (${span(until - at)} before the end)` : "")];
    for (const one of panels) {
      for (const line of one.lines.slice(0, 6)) {
        const found = before(line.points.filter((point) => point.mean !== null).map((point) => [point.at, point]), at);
        if (!found) continue;
        if (one === panels[0] && line === one.lines[0]) parts.push(h("span", null, "step ", h("b", null, figure(found[1].step))));
        parts.push(h("span", null, `${line.name} `, h("b", null, shown(one.name, found[1].mean))));
      }
    }
    put(readout, parts);
  });
  put(readout, h("span", { class: "muted" }, "Point at the picture to read values; choose a mark to find it in the conversation."));
  put(holder, svg);
}

const pen = document.createElement("canvas").getContext("2d");
/** How wide a text of the picture is. */
function measured(text) {
  pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(text).width;
}

/** Ends of a band, without a few that would flatten the line. */
function robust(extremes, values) {
  const sorted = [...values].sort((a, b) => a - b);
  const wide = (sorted[sorted.length - 1] - sorted[0] || Math.abs(sorted[0]) || 1) * 0.6;
  return extremes.filter((value) => value >= sorted[0] - wide && value <= sorted[sorted.length - 1] + wide);
}

function split(points) {
  const parts = [[]];
  for (const point of points) {
    if (point.mean === null) parts.push([]);
    else parts[parts.length - 1].push(point);
  }
  return parts.filter((part) => part.length > 1);
}

/** The curves and the marks as rows. */
export const asRows = (curves, marks) => [["time", "attempt", "step", "what", "direction", "value", "min", "max", "text"],
  ...[...curves].flatMap(([name, points]) => points.filter((point) => point.mean !== null).map((point) => [new Date(point.at).toISOString(), Number(point.attempt), point.step, name, "", point.mean, point.low, point.high, ""])),
  ...marks.map((mark) => [new Date(mark.at_ms).toISOString(), "", "", mark.kind, mark.way, "", "", "", mark.text])];

