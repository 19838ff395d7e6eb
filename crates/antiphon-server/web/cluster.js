// Cluster: every GPU as a cell on one canvas, in the network's order; the same as a table.

import { kind, live } from "./api.js";
import { COLORS, teamColors } from "./chart.js";
import { csv, empty, h, problem, put, skeleton, tip, token } from "./dom.js";
import { at, count, gpus, jobLink, plural } from "./format.js";

const MODES = [["team", "Team"], ["job", "Job"], ["use", "Measured use"], ["free", "Free of a node"]];
const LOOKS = [["held", "held back for a job that waits", "dot"], ["drained", "drained", "slash"], ["down", "down or broken", "cross"]];
/** Nodes in one column of a block. */
const COLUMN = 16;
const TABLE = 50;
/** Where a node stands, the widest first. */
const PLACE = ["partition", "spine", "leaf", "domain"];
const ORDER = new Intl.Collator("en", { numeric: true });

/** Opens the page; returns what closes it. */
export function open(main) {
  let rows = new Map();
  // In the network's order; each with its rows' newest values.
  let nodes = [];
  let jobs = new Map();
  let byName = new Map();
  let shares = { held: new Map(), colors: new Map() };
  // What is on the canvas: drawn anew as a whole only where more than some nodes' cells have changed.
  let laid = null;
  let painted = "";
  let mode = localStorage.getItem("antiphon-cells") || "team";
  let only = null;
  let boxes = [];
  let cursor = null;
  let asTable = false;
  let offset = 0;
  let wanted = "";

  const canvas = h("canvas", { class: "cells", tabindex: 0, role: "application", "aria-label": "GPUs of the cluster. Arrow keys move, Enter opens the job. The table has the same." });
  const say = h("div", { class: "sr", "aria-live": "polite" });
  const legend = h("div", { class: "legend", style: { padding: "4px 16px 0" } });
  const seg = h("div", { class: "seg", role: "group", "aria-label": "Color by" });
  const head = h("div", { class: "head" });
  const body = h("div", { class: "body" });
  const search = h("input", { type: "search", placeholder: "Nodes with this in name, place, job or team", "aria-label": "Search nodes", on: { input: () => { wanted = search.value.trim().toLowerCase(); offset = 0; draw(); } } });
  const look = h("button", { class: "btn", type: "button", on: { click: () => { asTable = !asTable; draw(); } } });
  const page = h("div", null, head, h("div", { class: "bar" }, seg, search, look),
    h("section", { class: "panel cluster" }, h("header", null, h("h2", null, "GPUs"), h("div", { class: "aside" }, csv("cluster", () => table()))), legend, body, say));
  put(main, skeleton());

  /** Takes rows in; returns the nodes that changed where the others stay where they are. */
  function read(changed) {
    const of = (prefix) => [...(changed || rows.keys())].filter((key) => key.startsWith(prefix));
    if (!changed) jobs = new Map();
    for (const key of of("job/")) {
      const [id, job] = [Number(key.slice(4)), rows.get(key)];
      if (job) jobs.set(id, job);
      else jobs.delete(id);
    }
    const named = of("node/").map((key) => key.slice(5));
    const stays = (name) => {
      const [was, is] = [byName.get(name), rows.get(`node/${name}`)];
      return was && is && PLACE.every((key) => (was[key] || "") === (is[key] || "")) && was.cells.length === is.cells.length;
    };
    if (changed && named.every(stays)) {
      for (const name of named) {
        const node = byName.get(name);
        for (const key of Object.keys(node)) if (key !== "name") delete node[key];
        Object.assign(node, rows.get(`node/${name}`));
      }
    } else {
      nodes = kind(rows, "node/").map(([name, node]) => ({ name, ...node }));
      const by = (a, b, key) => (a[key] === b[key] ? 0 : ORDER.compare(a[key] || "", b[key] || ""));
      nodes.sort((a, b) => PLACE.reduce((order, key) => order || by(a, b, key), 0) || by(a, b, "name"));
      byName = new Map(nodes.map((node) => [node.name, node]));
      laid = null;
    }
    shares = teams();
    // What a job's GPUs do stands in its row, not in those of its nodes.
    return changed && laid && mode !== "use" ? named : null;
  }

  const fits = (node) => !wanted || [node.name, node.partition, node.spine, node.leaf, node.domain, node.gpu_type, node.state,
    ...new Set(node.cells)].some((value) => {
    if (typeof value !== "number") return (value || "").toLowerCase().includes(wanted);
    const job = jobs.get(value);
    return job && `job-${value} ${job.name} ${job.team} ${job.user}`.toLowerCase().includes(wanted);
  });

  /** Teams by what they hold, so that the largest have colors of their own. */
  function teams() {
    const held = new Map();
    for (const node of nodes) {
      for (const cell of node.cells) {
        const job = cell && jobs.get(cell);
        if (job) held.set(job.team, (held.get(job.team) || 0) + 1);
      }
    }
    const largest = [...held].sort((a, b) => b[1] - a[1]).slice(0, COLORS.length);
    return { held, colors: teamColors(largest.map(([name]) => name)) };
  }

  const used = (node) => node.cells.filter((cell) => cell).length;

  function looks(node, index) {
    if (node.lost && node.lost.includes(index)) return "cross";
    if (node.cells[index]) return node.state === "ready" ? "" : "slash";
    if (node.state === "down") return "cross";
    if (node.state === "draining") return "slash";
    return node.held_for ? "dot" : "";
  }

  /** A cell's color: null for an empty one. */
  function paintOf(colors) {
    const free = ["var(--c2)", "var(--c4)", "var(--c1)"];
    const busy = (percent) => (percent < 10 ? "var(--bad)" : percent < 50 ? "var(--c1)" : "var(--c2)");
    return (node, cell, gpu) => {
      if (mode === "free") {
        const left = node.cells.length - used(node);
        if (!cell) return null;
        return left === 0 ? "var(--c0)" : left * 2 > node.cells.length ? free[2] : free[1];
      }
      if (!cell) return null;
      const job = jobs.get(cell);
      if (mode === "job") return COLORS[cell % COLORS.length];
      if (mode === "use") {
        const percent = node.devices?.[gpu]?.use_percent ?? job?.idle_percent;
        return percent === undefined ? "var(--line-2)" : busy(percent);
      }
      return (job && colors.get(job.team)) || "var(--ink-3)";
    };
  }

  /** The largest cells with which the cluster is seen at one look. */
  function layout(width) {
    const room = Math.max(360, window.innerHeight - 300);
    let placed;
    for (const size of [28, 22, 18, 16, 12, 10, 8, 6, 5]) {
      placed = laidOut(width, size);
      if (placed.height <= room) break;
    }
    return placed;
  }

  function laidOut(width, size) {
    const gap = size >= 16 ? 2 : 1;
    const named = size >= 16;
    const label = named ? Math.min(120, Math.max(40, ...nodes.map((node) => node.name.length * 7 + 10))) : 0;
    boxes = [];
    let [x, y, high] = [0, 0, 0];
    const headings = [];
    let last = {};
    const told = new Set(PLACE.filter((key) => nodes.some((node) => node[key])));
    const several = (key) => told.has(key);
    const newLine = (space) => { if (x > 0 || high > 0) { y += high + space; x = 0; high = 0; } };
    const groups = [];
    for (const node of nodes) {
      const group = groups[groups.length - 1];
      const same = group && ["partition", "spine", "leaf", "domain"].every((key) => (group.nodes[0][key] || "") === (node[key] || ""));
      if (same && group.nodes.length < COLUMN) group.nodes.push(node);
      else groups.push({ nodes: [node], first: !same });
    }
    for (const group of groups) {
      const first = group.nodes[0];
      if (several("partition") && first.partition !== last.partition) { newLine(16); headings.push({ text: `partition ${first.partition || "(none)"}`, x: 0, y: y + 12, strong: true }); y += 20; last = { partition: first.partition }; }
      if (several("spine") && first.spine !== last.spine) { newLine(12); headings.push({ text: first.spine || "no spine", x: 0, y: y + 11 }); y += 18; last.spine = first.spine; }
      const widest = Math.max(...group.nodes.map((node) => node.cells.length));
      const blockWidth = label + widest * (size + gap) + 14;
      const top = several("leaf") || several("domain") ? 15 : 0;
      const blockHigh = top + group.nodes.length * (size + gap) + 10;
      if (x > 0 && x + blockWidth > width) newLine(2);
      if (top && group.first) headings.push({ text: cutTo([first.leaf, first.domain].filter(Boolean).join(" · ") || "", blockWidth), x, y: y + 11, faint: true });
      group.nodes.forEach((node, index) => boxes.push({ node, x: x + label, y: y + top + index * (size + gap), labelX: x, size, gap, named }));
      x += blockWidth;
      high = Math.max(high, blockHigh);
    }
    return { height: Math.max(40, y + high), headings };
  }

  const cutTo = (text, width) => (text.length * 6 > width ? `${text.slice(0, Math.max(1, Math.floor(width / 6) - 1))}…` : text);

  /** Draws the cells: of the named nodes alone where everything else on the canvas still holds. */
  function paint(named) {
    const width = Math.floor(body.clientWidth - 32) || 800;
    const room = window.innerHeight;
    if (!laid || laid.width !== width || laid.room !== room) laid = { ...layout(width), width, room, boxOf: new Map(boxes.map((box) => [box.node.name, box])) };
    const { height, headings } = laid;
    const ratio = window.devicePixelRatio || 1;
    const { colors } = shares;
    const looks_ = [mode, only, wanted, width, room, ratio, document.documentElement.dataset.theme, [...colors], cursor && JSON.stringify(cursor)].join();
    const some = named && looks_ === painted;
    painted = looks_;
    const pen = canvas.getContext("2d");
    if (!some) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.height = `${height}px`;
      canvas.style.width = `${width}px`;
      pen.scale(ratio, ratio);
    }
    const real = new Map();
    const color = (name) => { if (!real.has(name)) real.set(name, name.startsWith("var(") ? token(name.slice(4, -1)) : name); return real.get(name); };
    const [ink, ink3, idle, panelColor, bad] = ["--ink", "--ink-3", "--idle", "--panel", "--bad"].map(token);
    const sans = getComputedStyle(document.body).fontFamily;
    for (const heading of some ? [] : headings) {
      pen.font = `${heading.strong ? 650 : 500} ${heading.faint ? 10.5 : 12}px ${sans}`;
      pen.fillStyle = heading.strong ? ink : ink3;
      pen.fillText(heading.text, heading.x, heading.y);
    }
    const of = paintOf(colors);
    for (const box of some ? named.map((name) => laid.boxOf.get(name)) : boxes) {
      const { node, size, gap } = box;
      if (some) pen.clearRect(box.labelX, box.y, box.x - box.labelX + node.cells.length * (size + gap), size);
      const dim = !fits(node);
      if (box.named) {
        pen.globalAlpha = dim ? 0.3 : 1;
        pen.font = `11px ${sans}`;
        pen.fillStyle = node.state === "ready" ? ink : bad;
        pen.fillText(node.name, box.labelX, box.y + size / 2 + 4);
      }
      node.cells.forEach((cell, index) => {
        const x = box.x + index * (size + gap);
        const fill = of(node, cell, index);
        const job = jobs.get(cell);
        pen.globalAlpha = dim || (only && (!job || job.team !== only)) ? 0.18 : 1;
        if (fill) {
          pen.fillStyle = color(fill);
          pen.fillRect(x, box.y, size, size);
        } else {
          pen.strokeStyle = idle;
          pen.lineWidth = 1;
          pen.strokeRect(x + 0.5, box.y + 0.5, size - 1, size - 1);
        }
        const form = looks(node, index);
        if (form) sign(pen, form, x, box.y, size, form === "cross" ? bad : fill ? panelColor : ink3);
        if (size >= 16 && node.shared && node.shared[index]) {
          pen.fillStyle = panelColor;
          pen.font = `600 10px ${sans}`;
          pen.fillText(String(node.shared[index].length), x + size / 2 - 3, box.y + size / 2 + 4);
        }
      });
      pen.globalAlpha = 1;
      if (node.maintenance_ms || node.back_ms) {
        pen.fillStyle = color("var(--warn)");
        pen.fillRect(box.x, box.y + size - 1, node.cells.length * (size + gap) - gap, 1.5);
      }
    }
    if (cursor && document.activeElement === canvas) {
      const box = boxes.find((one) => one.node.name === cursor.name);
      if (box) {
        pen.strokeStyle = color("var(--accent)");
        pen.lineWidth = 2;
        pen.strokeRect(box.x + cursor.gpu * (box.size + box.gap) - 1, box.y - 1, box.size + 2, box.size + 2);
      }
    }
  }

  function drawLegend() {
    const { held, colors } = shares;
    const square = (fill) => h("i", { class: "sw", style: { background: fill } });
    const parts = [];
    if (mode === "team") {
      for (const [name, fill] of colors) parts.push(h("button", { class: "csv", type: "button", "aria-pressed": only === name, title: "Show this team alone", on: { click: () => { only = only === name ? null : name; draw(); } } }, h("span", null, square(fill), name, h("b", null, count(held.get(name))))));
      const others = [...held].filter(([name]) => !colors.has(name)).reduce((sum, [, n]) => sum + n, 0);
      if (others) parts.push(h("span", null, square("var(--ink-3)"), "other teams", h("b", null, count(others))));
    } else if (mode === "job") parts.push(h("span", null, plural(jobs.size, "job"), ", a color each in turn"));
    else if (mode === "use") parts.push(h("span", null, square("var(--bad)"), "held and under 10 % busy"), h("span", null, square("var(--c1)"), "10 to 50 %"), h("span", null, square("var(--c2)"), "over 50 %"), h("span", null, square("var(--line-2)"), "not measured"));
    else parts.push(h("span", null, square("var(--c0)"), "node is full"), h("span", null, square("var(--c4)"), "less than half is free"), h("span", null, square("var(--c1)"), "more than half is free: a gang may not fit"));
    parts.push(h("span", null, h("i", { class: "sw", style: { "border-color": "var(--ink-3)" } }), "idle"));
    for (const [, text, form] of LOOKS) parts.push(h("span", null, signSquare(form), text));
    put(legend, parts);
  }

  function draw(named) {
    if (!rows.size) return;
    if (!page.isConnected) put(main, page);
    put(seg, MODES.map(([name, text]) => h("button", { type: "button", "aria-pressed": mode === name, on: { click: () => { mode = name; only = null; localStorage.setItem("antiphon-cells", name); draw(); } } }, text)));
    look.textContent = asTable ? "As cells" : "As a table";
    const all = kind(rows, "gpus/").reduce((total, [, counts]) => { for (const key of Object.keys(counts)) total[key] = (total[key] || 0) + counts[key]; return total; }, {});
    put(head, h("h1", null, "Cluster"), h("span", { class: "sub" }, nodes.length
      ? [plural(nodes.length, "node"), ", ", h("b", { "data-gpus": "total" }, gpus(all.total || 0)), " GPUs: ", h("b", { "data-gpus": "busy" }, gpus(all.busy || 0)), " working, ", gpus(all.held || 0), " held back, ", gpus(all.idle || 0), " idle", all.drained ? `, ${gpus(all.drained)} drained` : "", all.down ? `, ${gpus(all.down)} down` : ""] : ""));
    drawLegend();
    if (!nodes.length) put(body, empty("No nodes", "The backend offers none."));
    else if (asTable) put(body, list());
    else {
      if (canvas.parentNode !== body) put(body, canvas);
      paint(named);
    }
  }

  function table() {
    return [["node", "gpu", "state", "partition", "spine", "leaf", "nvlink_domain", "gpu_type", "job", "name", "team", "held_for"],
      ...nodes.flatMap((node) => node.cells.map((cell, index) => [node.name, index, node.lost && node.lost.includes(index) ? "lost" : node.state, node.partition, node.spine, node.leaf, node.domain, node.gpu_type, cell ? `job-${cell}` : "", jobs.get(cell)?.name, jobs.get(cell)?.team, node.held_for ? `job-${node.held_for}` : ""]))];
  }

  function list() {
    const found = nodes.filter(fits);
    const part = found.slice(offset, offset + TABLE);
    const turn = (text, to, possible) => h("button", { class: "btn small", type: "button", disabled: !possible, on: { click: () => { offset = to; draw(); } } }, text);
    return [h("div", { class: "scroll" }, h("table", { class: "cards" },
      h("thead", null, h("tr", null, ["Node", "State", "Place", "Type"].map((name) => h("th", null, name)), h("th", { class: "num" }, "Free"), h("th", null, "Jobs"), h("th", null, "Held, planned"))),
      h("tbody", null, part.map((node) => h("tr", { tabindex: 0, "data-row": node.name }, h("td", { class: "jobname" }, node.name), h("td", { class: "inline" }, node.state === "ready" ? "ready" : h("span", { class: "bad" }, `✕ ${node.state}`), node.reason ? h("div", { class: "jobid" }, node.reason) : null),
        h("td", { class: "inline" }, [node.partition, node.spine, node.leaf, node.domain].filter(Boolean).join(" › ") || h("span", { class: "muted" }, "not told")), h("td", { class: "inline" }, node.gpu_type || "–"),
        h("td", { class: "num inline", "data-l": "free" }, `${node.cells.length - used(node)} of ${node.cells.length}`),
        h("td", null, [...new Set(node.cells.filter((cell) => cell))].map((cell) => [jobLink(`job-${cell}`, jobs.get(cell)?.name), " "])),
        h("td", { class: "reason" }, node.held_for ? ["held for ", jobLink(`job-${node.held_for}`, jobs.get(node.held_for)?.name), " "] : "", node.maintenance_ms ? ["maintenance ", at(node.maintenance_ms), " "] : "", node.back_ms ? ["given back ", at(node.back_ms)] : "")))))),
    found.length > TABLE ? h("div", { class: "bar", style: { margin: "12px 0 0", "justify-content": "flex-end" } }, h("span", { class: "muted" }, `${count(offset + 1)}–${count(Math.min(found.length, offset + TABLE))} of ${count(found.length)}`), turn("← Earlier", offset - TABLE, offset > 0), turn("Later →", offset + TABLE, offset + TABLE < found.length)) : null];
  }

  function told(node, gpu) {
    const cell = node.cells[gpu];
    const job = jobs.get(cell);
    const place = [node.partition, node.spine, node.leaf, node.domain].filter(Boolean).join(" › ");
    const lines = [`${node.name}, GPU ${gpu}${place ? ` · ${place}` : ""}`];
    if (node.lost && node.lost.includes(gpu)) lines.push("broken: the node goes on without it");
    else if (cell) lines.push(`${job ? job.name : ""} (job-${cell})${job ? ` · team ${job.team} · ${job.class} · ${job.state}` : ""}`);
    else if (node.held_for) lines.push(`held back for ${jobs.get(node.held_for)?.name || ""} (job-${node.held_for})`);
    else lines.push(node.state === "ready" ? "idle" : node.state);
    if (node.shared && node.shared[gpu]) lines.push(`shared by ${node.shared[gpu].map((id) => `job-${id}`).join(", ")}`);
    const device = node.devices?.[gpu];
    if (device) lines.push([device.use_percent === undefined ? "" : `about ${device.use_percent} % busy`, device.temperature_c === undefined ? "" : `${device.temperature_c} °C`].filter(Boolean).join(", "));
    else if (job && job.idle_percent !== undefined) lines.push(`its GPUs are ${job.idle_percent} % busy`);
    if (device?.held_down) lines.push(`its clocks are held down: ${device.held_down.join(", ")}`);
    if (device?.xid) lines.push(`the driver's last error: XID ${device.xid}`);
    if (node.reason) lines.push(`${node.state}: ${node.reason}`);
    return lines.join("\n");
  }

  function hit(event) {
    const frame = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - frame.left, event.clientY - frame.top];
    for (const box of boxes) {
      if (y < box.y || y >= box.y + box.size + box.gap || x < box.x) continue;
      const gpu = Math.floor((x - box.x) / (box.size + box.gap));
      if (gpu < box.node.cells.length) return { name: box.node.name, node: box.node, gpu };
    }
    return null;
  }

  const enter = (node, gpu) => {
    const id = node.cells[gpu] || node.held_for;
    if (id) location.hash = `#/job/job-${id}`;
  };
  canvas.addEventListener("pointermove", (event) => { const found = hit(event); tip(found ? told(found.node, found.gpu) : "", event.clientX, event.clientY); });
  canvas.addEventListener("pointerleave", () => tip(""));
  canvas.addEventListener("click", (event) => { const found = hit(event); if (found) { tip(""); enter(found.node, found.gpu); } });
  canvas.addEventListener("keydown", (event) => {
    const index = cursor ? boxes.findIndex((box) => box.node.name === cursor.name) : -1;
    const box = boxes[index];
    if (event.key === "Enter" && box) { enter(box.node, cursor.gpu); return; }
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step || !boxes.length) return;
    event.preventDefault();
    if (!box) cursor = { name: boxes[0].node.name, gpu: 0 };
    else {
      let to = index + step[0];
      let gpu = cursor.gpu + step[1];
      if (gpu < 0) { to -= 1; gpu = Infinity; } else if (gpu >= box.node.cells.length) { to += 1; gpu = 0; }
      const next = boxes[Math.min(boxes.length - 1, Math.max(0, to))];
      cursor = { name: next.node.name, gpu: Math.max(0, Math.min(gpu, next.node.cells.length - 1)) };
    }
    const now = boxes.find((one) => one.node.name === cursor.name);
    const text = told(now.node, cursor.gpu);
    say.textContent = text;
    paint();
    const frame = canvas.getBoundingClientRect();
    tip(text, frame.left + now.x + cursor.gpu * (now.size + now.gap), frame.top + now.y);
  });
  canvas.addEventListener("blur", () => { tip(""); paint(); });

  const stop = live({ page: "cluster" }, (next, changed) => {
    rows = next;
    if (changed && ![...changed].some((key) => /^(node|job|gpus)\//.test(key))) return;
    draw(read(changed));
  }, (error) => put(main, problem(error)));
  const again = () => { if (page.isConnected) draw(); };
  window.addEventListener("resize", again);
  window.addEventListener("painted", again);
  return () => { stop(); tip(""); window.removeEventListener("resize", again); window.removeEventListener("painted", again); };
}

/** Signs over cells, which tell without color. */
function sign(pen, form, x, y, size, color) {
  pen.strokeStyle = color;
  pen.fillStyle = color;
  pen.lineWidth = size >= 16 ? 1.5 : 1;
  const inset = size >= 16 ? 5 : 1;
  pen.beginPath();
  if (form === "dot") {
    pen.arc(x + size / 2, y + size / 2, Math.max(1, size / 6), 0, 7);
    pen.fill();
    return;
  }
  pen.moveTo(x + inset, y + size - inset);
  pen.lineTo(x + size - inset, y + inset);
  if (form === "cross") {
    pen.moveTo(x + inset, y + inset);
    pen.lineTo(x + size - inset, y + size - inset);
  }
  pen.stroke();
}

function signSquare(form) {
  const canvas = h("canvas", { width: 24, height: 24, "aria-hidden": "true", style: { width: "12px", height: "12px" } });
  const pen = canvas.getContext("2d");
  pen.scale(2, 2);
  pen.strokeStyle = token("--idle");
  pen.strokeRect(0.5, 0.5, 11, 11);
  sign(pen, form, 0, 0, 12, form === "cross" ? token("--bad") : token("--ink-3"));
  return canvas;
}

