// Job: both directions in one picture, the conversation in words, and everything that is known of one job.

import { buttons } from "./act.js";
import { Problem, get, kind, live, observes, post, raw } from "./api.js";
import { csv, empty, h, panel, problem, put, s, skeleton, ticked } from "./dom.js";
import { at, bytes, count, dollars, figure, gpuTime, gpus, jobLink, now, plural, simulated, span, starts, state, way } from "./format.js";
import { asRows, curvesOf, draw as drawPicture } from "./picture.js";

const RANGES = [["all", "Whole life", 0], ["day", "Day", 86400000], ["hour", "Hour", 3600000], ["ten", "10 min", 600000]];
const OUTPUT_KEPT = 131072;
const TASKS_SHOWN = 24;
/** Columns of numbers, which stand to the right under their names. */
const NUMBERS = new Set(["Step", "Recent loss", "Samples", "Done again"]);
const ended = (name) => ["succeeded", "failed", "canceled"].includes(name);

/** Opens the page; returns what closes it. */
export function open(main, place) {
  if (!place.subject) {
    put(main, h("div", { class: "head" }, h("h1", null, "Job")), h("section", { class: "panel" }, empty("Choose a job", ["Open one from the ", h("a", { href: "#/queue" }, "queue"), " or from a GPU of the ", h("a", { href: "#/cluster" }, "cluster"), "."])));
    return () => {};
  }
  const id = place.subject;
  const path = `/v1/jobs/${encodeURIComponent(id)}`;
  let rows = new Map();
  let range = "all";
  let why = null;
  let origins = null;
  let lastState = "";
  let width = 0;
  let closed = false;

  const head = h("div", { class: "head" });
  const acts = h("div");
  const facts = h("dl", { class: "facts body" });
  const reasons = h("div", { class: "body" });
  const holder = h("div");
  const readout = h("div", { class: "readout", "aria-live": "polite" });
  const seg = h("div", { class: "seg", role: "group", "aria-label": "Range" });
  const pictureNote = h("div", { class: "muted" });
  const talk = h("ol", { class: "talk", tabindex: 0, "aria-label": "Conversation, the newest first" });
  const tables = h("div", { class: "stack" });
  const graph = h("div");
  const output = h("pre", { class: "output", tabindex: 0, "aria-label": "Output" });
  const outputNote = h("span");
  const page = h("div", { class: "stack" }, h("div", null, head, acts),
    h("div", { class: "grid cols-2" }, panel("Facts", null, facts), panel("Why", null, reasons)),
    panel("Both directions", [seg, csv(`${id}`, () => asRows(curvesOf(rows), marks()))], h("div", { class: "body" }, readout, holder, pictureNote)),
    h("div", { class: "grid cols-half even" }, panel("Conversation", h("span", null, "antiphon on the left, the training loop on the right"), talk), panel("Output", outputNote, output)),
    tables, panel("Where its data came from", null, graph));
  put(main, skeleton());

  const fit = new ResizeObserver(([entry]) => {
    const next = Math.round(entry.contentRect.width);
    if (next && next !== width) { width = next; picture(); }
  });
  fit.observe(holder);

  const marks = () => kind(rows, "told/").map(([, told]) => told);

  function bands(summary, attempts, current) {
    const found = [];
    let free = summary.submitted_ms;
    const wait = (until) => { if (until - free > 500) found.push({ kind: "waits", from: free, until, text: "waits", title: `waits ${span(until - free)}` }); };
    const stops = marks().filter((told) => told.kind === "stop");
    const run = (name, from, until, title) => {
      // One at the very moment of a launch was the attempt before's.
      const stop = stops.find((told) => told.at_ms > from && told.at_ms <= until);
      if (stop && until - stop.at_ms > 500) {
        found.push({ kind: "runs", from, until: stop.at_ms, text: name, title });
        found.push({ kind: "stops", from: stop.at_ms, until, text: "stops", title: `gives way for ${span(until - stop.at_ms)}` });
      } else found.push({ kind: "runs", from, until, text: name, title });
    };
    for (const attempt of attempts) {
      wait(attempt.launched_ms);
      run(attempt.id, attempt.launched_ms, attempt.ended_ms, `${attempt.id} on ${attempt.allocation}: ${attempt.exit}`);
      free = attempt.ended_ms;
    }
    if (current) {
      wait(current.launched_ms);
      run(current.id, current.launched_ms, now(), `${current.id} on ${current.allocation}`);
    } else if (!ended(summary.state)) wait(now());
    return found;
  }

  function picture() {
    const summary = rows.get("summary");
    if (!summary || !width) return;
    const attempts = kind(rows, "attempt/").map(([, attempt]) => attempt);
    const last = attempts.length ? attempts[attempts.length - 1].ended_ms : 0;
    const until = ended(summary.state) ? Math.max(summary.since_ms, last) : now();
    const length = RANGES.find(([name]) => name === range)[2];
    const from = Math.min(until - 1000, length ? Math.max(summary.submitted_ms, until - length) : summary.submitted_ms);
    const curves = curvesOf(rows);
    drawPicture(holder, readout, width, { from, until: until + (until - from) * 0.015, marks: marks(), bands: bands(summary, attempts, rows.get("current")), curves }, (mark) => {
      const item = talk.querySelector(`[data-told="${mark.seq}.${mark.index}"]`);
      item?.scrollIntoView({ block: "nearest" });
      item?.focus();
    });
    put(pictureNote, curves.size ? "" : simulated() ? "A simulated training loop reports no numbers: what was decided for it is drawn, and when it ran." : summary.attempts ? "Its training loop has reported no numbers since the server started. Attach the antiphon package, and loss, gradient norm and step time are drawn here." : "It has not started yet: curves begin with its first step.");
  }

  function draw() {
    const summary = rows.get("summary");
    if (rows.has("forgotten")) { put(main, h("section", { class: "panel" }, empty(`${id} is forgotten`, "It ended long ago; what it did is still in the log."))); return; }
    if (!summary) return;
    const detail = rows.get("detail") || {};
    if (!page.isConnected) put(main, page);
    document.title = `${summary.name} · antiphon`;
    put(head, h("h1", null, h("span", { class: "jobname", "data-name": "" }, summary.name)), h("span", { class: "sub" }, `${summary.id} · `), state(summary.state), ["pending", "held"].includes(summary.state) ? null : h("span", { class: "sub reason" }, ticked(summary.reason)),
      h("span", { class: "push muted" }, detail.attached ? h("span", { class: "good" }, "✓ trainer attached") : summary.state === "running" && !observes ? "trainer not attached: nothing reaches it" : ""));
    put(acts, buttons({ ...summary, cost_of_stopping: detail.cost_of_stopping }, () => ask()));
    put(seg, RANGES.map(([name, text]) => h("button", { type: "button", "aria-pressed": range === name, on: { click: () => { range = name; draw(); } } }, text)));
    factsOf(summary, detail);
    picture();
    conversation();
    put(tables, tablesOf(detail));
    if (summary.state !== lastState) {
      lastState = summary.state;
      ask();
    }
  }

  function factsOf(summary, detail) {
    const signals = detail.signals;
    const price = rows.get("price") || {};
    const current = rows.get("current");
    const spent = price.spent_gpu_ms + price.running_gpu_ms;
    const cost = price.usd_micros_per_gpu_hour ? ` · ${dollars((spent / 3600000) * price.usd_micros_per_gpu_hour)}` : "";
    const left = summary.ends_ms && current ? Math.max(0, summary.ends_ms - now()) : null;
    const more = left === null ? null : (left * current.gpus_thousandths) / 1000;
    const converge = signals && signals.forecast;
    const fact = (name, value, small) => (value === null || value === undefined || value === "" ? null : h("div", null, h("dt", null, name), h("dd", { "data-fact": name }, value, small ? h("small", null, " ", small) : null)));
    put(facts,
      fact("Class", summary.class, summary.runs_as ? `runs as ${summary.runs_as}` : ""), fact("Team", summary.team, summary.user),
      fact("GPUs", gpus(summary.gpus_thousandths), summary.allocation ? h("span", { title: summary.allocation }, `on ${summary.allocation.length > 44 ? `${summary.allocation.slice(0, 43)}…` : summary.allocation}`) : ""),
      fact("Step", summary.step === null ? null : count(summary.step), summary.steps_total ? `of ${count(summary.steps_total)}` : ""),
      fact("Loss", summary.loss === null ? null : summary.loss.toFixed(4)), fact("Gradient norm", signals && signals.grad_norm !== null ? figure(signals.grad_norm) : null),
      fact("Step time", signals && signals.step_ms ? `${figure(signals.step_ms)} ms` : null), fact("Tokens a second", signals && signals.tokens_per_s ? figure(signals.tokens_per_s) : null),
      ...planned(detail, fact), accepted(detail.accept, fact),
      fact("Had so far", gpuTime(spent), cost), fact("Still to come", more === null ? null : gpuTime(more), price.usd_micros_per_gpu_hour && more !== null ? dollars((more / 3600000) * price.usd_micros_per_gpu_hour) : ""),
      fact("Lost", detail.lost_gpu_ms >= 1000 ? gpuTime(detail.lost_gpu_ms) : "nothing", detail.lost_gpu_ms >= 1000 ? "done again" : ""),
      fact(ended(summary.state) ? "Ended" : "Ends", ended(summary.state) ? at(summary.since_ms) : left === null ? null : left > 0 ? `in ${span(left)}` : "overdue"), fact("Starts", summary.state === "pending" ? starts(summary.start) || "not forecast" : null),
      fact("Loss at the end", converge ? figure(converge.end_loss[1]) : null, converge ? `${figure(converge.end_loss[0])} to ${figure(converge.end_loss[2])} in eight of ten cases` : ""),
      fact("Last checkpoint", detail.checkpoint ? `step ${count(detail.checkpoint.step)}` : "none", detail.checkpoint ? `${span(now() - detail.checkpoint.at_ms)} ago${detail.checkpoint.bytes ? `, ${bytes(detail.checkpoint.bytes)}` : ""}` : detail.checkpoint_dir ? "" : "no directory is set"),
      fact("Deadline", summary.deadline ? at(summary.deadline.at_ms) : null, summary.deadline && !summary.deadline.counts ? "does not count" : ""),
      detail.after && detail.after.length ? fact("After", detail.after.map((job) => [jobLink(job), " "])) : null, fact("Submitted", at(summary.submitted_ms)),
      fact("Signals", signals ? count(signals.count) : null, signals && signals.dropped ? `${count(signals.dropped)} dropped` : ""),
      advised(detail, fact));
  }

  /** What was planned for the shape in which it ran, or for the one that it prefers, beside what was measured. */
  function planned(detail, fact) {
    const measured = detail.measured;
    const plan = (detail.plans || [])[measured && measured.plan !== null ? measured.plan : 0];
    const took = measured && `${figure(measured.step_us / 1000)} ms`;
    const held = measured && measured.allocated_bytes && bytes(measured.allocated_bytes);
    return [
      plan ? fact("Planned", `${gpus(plan.gpus_thousandths)} ${plan.gpu_type}`, plan.layout) : null,
      plan ? fact("Step against plan", took || "not measured yet", `planned ${figure(plan.step_us / 1000)} ms`) : null,
      plan ? fact("Memory against plan", held || "not measured yet", `planned ${bytes(plan.allocated_bytes)}, a GPU has ${bytes(plan.usable_bytes)}`) : fact("Memory of a GPU", held),
    ];
  }

  /** Whether its result is what its `accept` line asks for: by a mark and in words, never by color alone. */
  function accepted(accept, fact) {
    if (!accept) return null;
    const known = accept.value === null ? "nothing measured" : `${accept.state === "met" ? "" : "best "}${figure(accept.value)} at step ${count(accept.step)}`;
    const [kind, words] = { met: ["good", "✓ met"], "not-yet": ["muted", "not yet"], "not-met": ["bad", "✕ not met"] }[accept.state];
    const row = fact("Acceptable", h("span", { class: kind, title: accept.sentence }, words), `${known}, asked ${accept.line} on ${accept.from}`);
    row.style.gridColumn = "span 2";
    return row;
  }

  /** What it could ask for instead, where it holds far more than it uses: a sentence, over the whole width. */
  function advised(detail, fact) {
    const advice = detail.measured && detail.measured.suggestion;
    const row = advice ? fact("Could ask for less", ticked(advice)) : null;
    if (row) row.style.gridColumn = "1 / -1";
    return row;
  }

  function conversation() {
    const told = marks().reverse().slice(0, 150);
    put(talk, told.length ? told.map((one) => h("li", { class: one.way, tabindex: -1, "data-told": `${one.seq}.${one.index}` },
      h("div", { class: "meta" }, way(one.way), at(one.at_ms), h("a", { href: `#/explain/${one.seq}` }, "explain")), ticked(one.text)))
      : h("li", { class: "decided" }, "Nothing has been said yet."));
  }

  const acting = (path_, body) => (event) => {
    const button = event.currentTarget;
    button.disabled = true;
    post(path_, body).catch((error) => { button.after(problem(error)); }).finally(() => { button.disabled = false; });
  };

  function tablesOf(detail) {
    const table = (title, list, columns, line) => (list.length ? panel(`${title} (${count(list.length)})`, csv(`${id}-${title.toLowerCase()}`, () => [Object.keys(list[0]), ...list.map((row) => Object.values(row).map((value) => (typeof value === "object" && value !== null ? JSON.stringify(value) : value)))]),
      h("div", { class: "flush scroll" }, h("table", { class: "cards" }, h("thead", null, h("tr", null, columns.map((name) => h("th", { class: NUMBERS.has(name) ? "num" : null }, name)))), h("tbody", null, list.map(line))))) : null);
    const list = (name) => kind(rows, `${name}/`).map(([, entry]) => entry);
    const cell = (text, extra) => h("td", extra, text);
    return [
      table("Findings", list("finding"), ["Rule", "Of", "Verdict", "Evidence", "Step", "What became of it"], (one) => h("tr", null, cell(one.rule), cell(one.subject || h("span", { class: "muted" }, "the run")), cell(h("b", null, one.verdict)), cell(one.evidence, { class: "reason" }), cell(count(one.step), { class: "num inline", "data-l": "step" }),
        h("td", { class: "reason" }, ticked(one.stage), one.remedies.length ? h("div", { class: "jobid" }, `would help: ${one.remedies.join("; ")}`) : null, one.stage === "waits for approval" && !simulated() ? h("button", { class: "btn small", type: "button", on: { click: acting(`${path}/approve`, { rule: one.rule, subject: one.subject }) } }, "Approve") : null))),
      table("Directives", list("directive"), ["#", "Do", "Because", "When", "Answer", ""], (one) => h("tr", null, cell(`#${one.id}`), cell(h("span", { class: "mono" }, one.do)), cell(ticked(one.reason), { class: "reason" }), cell(at(one.at_ms)), cell(one.answer ? ticked(one.answer) : h("span", { class: "muted" }, "none yet"), { class: "reason" }),
        h("td", null, one.answer && one.answer.startsWith("applied") && !simulated() ? h("button", { class: "btn small", type: "button", on: { click: acting(`${path}/directives/${one.id}/undo`) } }, "Take back") : null))),
      table("Attempts", list("attempt"), ["Attempt", "On", "From", "Ran", "Stopped", "Ended", "Outcome", "Done again"], (one) => h("tr", null, cell(one.id, { class: "nowrap" }), cell(h("span", { class: "mono" }, one.allocation), { class: "reason" }), cell(at(one.launched_ms)), cell(one.started_ms ? span(one.ended_ms - one.started_ms) : "never started"), cell(one.stopped || "", { class: "reason" }), cell(one.exit, { class: "reason" }), cell(one.outcome), cell(one.lost_gpu_ms >= 1000 ? gpuTime(one.lost_gpu_ms) : "", { class: "num" }))),
      taskTimes(detail),
      table("Tasks", detail.tasks || [], ["Task", "On", "Phase", "Exit"], (one) => h("tr", null, cell(one.id), cell(h("span", { class: "mono" }, one.allocation)), cell(one.phase), cell(one.exit || "", { class: "reason" }))),
      table("Shards", list("shard"), ["Shard", "Recent loss", "Samples", "Found"], (one) => h("tr", null, cell(one.id), cell(one.loss.toFixed(4), { class: "num" }), cell(count(one.samples), { class: "num" }), cell(one.finding ? h("b", { class: "bad" }, `✕ ${one.finding}`) : ""))),
      table("Data jobs", detail.data_jobs || [], ["Job", "Method", "Category", "Shard", "Stage"], (one) => h("tr", null, cell(jobLink(one.job)), cell(one.method), cell(one.category), cell(one.shard), cell(one.stage))),
    ];
  }

  /** What each task takes for a step by itself: in a gang that waits for its slowest, this tells them apart. */
  function taskTimes(detail) {
    const times = rows.get("task_times") || [];
    if (times.length < 2) return null;
    const sorted = [...times].sort((a, b) => b.own_ms - a.own_ms);
    const middle = sorted[sorted.length >> 1].own_ms;
    const most = Math.max(sorted[0].own_ms, middle * 1.15);
    const place = (task) => (detail.tasks || [])[task]?.allocation || "";
    const line = (one) => {
      const over = one.own_ms / middle - 1;
      return h("tr", null, h("td", { class: "nowrap" }, `task ${one.task}`, h("div", { class: "jobid" }, place(one.task))),
        h("td", { style: { width: "55%" } }, h("div", { class: "meter", role: "img", "aria-label": `${figure(one.own_ms)} ms` }, h("i", { class: over >= 0.15 ? "f-down" : "f-busy", style: { width: `${(100 * one.own_ms) / most}%` } }))),
        h("td", { class: "num" }, `${figure(one.own_ms)} ms`), h("td", { class: over >= 0.15 ? "num bad" : "num muted" }, `${over >= 0 ? "+" : "−"}${Math.abs(over * 100).toFixed(0)} %`),
        h("td", { class: "num muted" }, one.share < 1 ? `${Math.round(one.share * 100)} % of a share` : ""));
    };
    const shown = sorted.slice(0, TASKS_SHOWN);
    return panel("Step time by task", [sorted.length > shown.length ? `the ${shown.length} slowest of ${count(sorted.length)}` : "the slowest first", csv(`${id}-task-times`, () => [["task", "own_ms", "share"], ...times.map((one) => [one.task, one.own_ms, one.share])])],
      h("div", { class: "body" }, h("p", { class: "muted" }, `A step less what it waits for the others, in the median of the last window; the middle of all is ${figure(middle)} ms.`), h("table", null, h("tbody", null, shown.map(line)))));
  }

  async function ask() {
    try {
      why = await get(`${path}/why`);
      put(reasons, h("ul", { class: "sentences" }, why.sentences.map((text) => h("li", null, ticked(text)))));
    } catch (error) {
      put(reasons, problem(error));
    }
  }

  async function provenance() {
    try {
      origins = await get(`${path}/shards`);
      put(graph, origins.shards.length ? provenanceGraph(origins.shards, rows.get("summary"), rows.get("detail")) : empty("Nobody said", ["Name sources in ", h("code", null, "[data]"), " of the job file, and they stand here from source to checkpoint."]));
    } catch (error) {
      put(graph, h("div", { class: "body" }, problem(error)));
    }
  }

  /* output: its end, then what comes */
  let offset = null;
  let from = "";
  let text = "";
  const decoder = new TextDecoder();
  async function follow() {
    if (closed) return;
    let wait = 2000;
    try {
      const { bytes: got, headers } = await raw(`${path}/output?${offset === null ? "tail=65536" : `offset=${offset}`}`);
      const attempt = `${headers.get("antiphon-attempt")}/${headers.get("antiphon-task")}`;
      if (attempt !== from && offset !== null) { offset = null; text = ""; from = attempt; setTimeout(follow, 0); return; }
      from = attempt;
      offset = Number(headers.get("antiphon-offset"));
      if (got.length) {
        text = (text + decoder.decode(got, { stream: true })).slice(-OUTPUT_KEPT);
        const below = output.scrollHeight - output.scrollTop - output.clientHeight < 40;
        // Terminal sequences color nothing here.
        output.textContent = text.replace(/\u001b\[[0-9;?]*[A-Za-z]/g, "");
        if (below) output.scrollTop = output.scrollHeight;
      } else if (!text) output.textContent = "It has printed nothing yet.";
      put(outputNote, `task ${from}`);
      if (headers.get("antiphon-ended") === "true") wait = 10000;
    } catch (error) {
      if (!text) output.textContent = error instanceof Problem && error.code === "AP0507" ? "It has not started yet, so it has printed nothing." : error.detail || "The output could not be read.";
      wait = 5000;
    }
    if (!closed) setTimeout(follow, wait);
  }

  const stop = live({ page: "job", job: id }, (next) => { rows = next; draw(); }, (error) => put(main, problem(error)));
  follow();
  provenance();
  // A band grows and a span passes while nothing is said.
  const tick = setInterval(() => { if (rows.size && !ended(lastState) && !document.querySelector("dialog[open]")) picture(); }, 2000);
  const again = setInterval(() => { if (lastState === "pending" || lastState === "held") ask(); }, 10000);
  return () => { closed = true; stop(); fit.disconnect(); clearInterval(tick); clearInterval(again); };
}

/** From where the data came to what was made of it, in columns. */
function provenanceGraph(shards, summary, detail) {
  const columns = [new Map(), new Map(), new Map(), new Map()];
  const edges = [];
  const add = (column, name, note) => { if (!columns[column].has(name)) columns[column].set(name, { name, note: note || "" }); return [column, name]; };
  const job = add(2, summary ? summary.name : "this job", summary ? summary.id : "");
  if (detail && detail.checkpoint) edges.push([job, add(3, `step ${detail.checkpoint.step}`, "checkpoint")]);
  for (const shard of shards.slice(0, 40)) {
    const made = add(1, shard.id, [shard.category, shard.findings.length ? `✕ ${shard.findings.join(", ")}` : ""].filter(Boolean).join(" · "));
    edges.push([made, job]);
    const from = [shard.source && [shard.source, shard.chunk], shard.generator && [shard.generator, "generator"], shard.made_by && [shard.made_by, "made by"], ...shard.parents.map((parent) => [parent, "shard"])].filter(Boolean);
    for (const [name, note] of from) edges.push([add(0, name, note), made]);
  }
  const used = columns.map((column, index) => ({ column, index })).filter(({ column }) => column.size);
  const [line, width] = [40, 220];
  const height = Math.max(...used.map(({ column }) => column.size)) * line + 10;
  const place = new Map();
  used.forEach(({ column, index }, slot) => [...column.keys()].forEach((name, row) => place.set(`${index}/${name}`, [slot * (width + 60), 6 + row * line + (height - 10 - column.size * line) / 2])));
  const svg = s("svg", { class: "chart", width: used.length * (width + 60), height, role: "img", "aria-label": `Provenance: ${plural(shards.length, "shard")}`, style: { width: `${used.length * (width + 60)}px` } });
  for (const [[a, from], [b, to]] of edges) {
    const [[x1, y1], [x2, y2]] = [place.get(`${a}/${from}`), place.get(`${b}/${to}`)];
    svg.append(s("path", { d: `M${x1 + width} ${y1 + 16}C${x1 + width + 30} ${y1 + 16} ${x2 - 30} ${y2 + 16} ${x2} ${y2 + 16}`, fill: "none", stroke: "var(--line-2)", "stroke-width": 1.5 }));
  }
  for (const { column, index } of used) {
    for (const { name, note } of column.values()) {
      const [x, y] = place.get(`${index}/${name}`);
      const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
      svg.append(s("rect", { x, y, width, height: 33, rx: 6, fill: "var(--panel)", stroke: index === 2 ? "var(--accent)" : "var(--line-2)" }, s("title", null, `${name} ${note}`)),
        s("text", { x: x + 10, y: y + 14, style: { fill: "var(--ink)", "font-weight": "600" } }, cut(name, 30)), s("text", { x: x + 10, y: y + 27, "font-size": 10 }, cut(note, 34)));
    }
  }
  return h("div", { class: "body scroll" }, svg);
}
