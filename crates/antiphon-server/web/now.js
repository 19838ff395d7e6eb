// Now: is all well, who waits, what the GPUs do, and what antiphon did in the last hour.

import { Problem, get, kind, live, observes } from "./api.js";
import { sparkline, timeChart } from "./chart.js";
import { empty, h, panel, problem, put, skeleton } from "./dom.js";
import { at, count, figure, gpuTime, gpus, jobLink, now, plural, sentence, simulated, span, way } from "./format.js";

const WORDS = {
  effective_throughput: ["Effective throughput", ""],
  completion_rate: ["Jobs done without a human", "of those that ended, platform causes only"],
  time_to_checkpoint: ["Time to checkpoint", "from asking to durable"],
  scheduling_delay_production: ["Delay of production", "95th percentile"],
  scheduling_delay_best_effort: ["Delay of best-effort", "95th percentile"],
  scheduling_delay: ["Scheduling delay", "production, 95th percentile"],
};
const FOUR = [["Effective throughput", "tokens a second per dollar"], ["Jobs done without a human", "redline 85 %"], ["Time to checkpoint", "redline 3 min"], ["Scheduling delay", "redline 30 s production, 5 min best-effort"]];
const CLASSES = ["service", "production", "standard", "best-effort"];
const STATES = [["busy", "Working", "f-busy"], ["held", "Held back", "f-held"], ["idle", "Idle", "f-idle"], ["drained", "Drained", "f-drained"], ["down", "Down", "f-down"]];

function shown(value, unit) {
  if (value === null || value === undefined) return ["–", ""];
  if (unit === "share") return [`${(value * 100).toFixed(1)}`, "%"];
  if (unit === "ms") return value >= 60000 ? [(value / 60000).toFixed(1), "min"] : [(value / 1000).toFixed(value < 10000 ? 2 : 0), "s"];
  if (unit === "s" || unit === "seconds") return value >= 120 ? [(value / 60).toFixed(1), "min"] : [figure(value), "s"];
  return [figure(value), unit || ""];
}

function numbers(told) {
  if (!told) {
    return FOUR.map(([name, line]) => h("section", { class: "panel number" },
      h("div", { class: "name" }, name), h("div", { class: "value none" }, "not measured yet"), h("div", { class: "line" }, line)));
  }
  return told.numbers.map((number) => {
    const [name, line] = WORDS[number.name] || [number.name.replaceAll("_", " "), ""];
    const [value, unit] = shown(number.value, number.unit);
    const [red, redUnit] = shown(number.redline, number.unit);
    const known = (value) => value !== null && value !== undefined;
    // Without samples nothing is said: no news is not good news.
    const verdict = !known(number.redline) || !known(number.value) ? null
      : number.over ? h("span", { class: "bad" }, "✕ over the redline") : h("span", { class: "good" }, "✓ within");
    return h("section", { class: "panel number", "data-number": number.name },
      h("div", { class: "name" }, name, verdict),
      number.value === null || number.value === undefined
        ? h("div", { class: "value none" }, "no samples yet") : h("div", { class: "value" }, value, " ", h("small", null, unit)),
      h("div", { class: "line" }, [known(number.redline) ? `redline ${red} ${redUnit}` : line, number.samples ? plural(number.samples, "sample") : ""].filter(Boolean).join(" · ")),
      known(number.value) && number.history && number.history.length > 1 ? sparkline(number.history, number.redline, `${name}, the last day`) : null);
  });
}

const DID = [
  ["start", (n) => `started ${plural(n, "job")}`], ["stop", (n) => `asked ${plural(n, "job")} to stop`], ["requeue", (n) => `sent ${count(n)} back to the queue`],
  ["retry", (n) => `tried ${count(n)} again`], ["success", (n) => `saw ${count(n)} finish`], ["failure", (n) => `saw ${count(n)} fail`],
  ["finding", (n) => `was told ${plural(n, "finding")}`], ["checkpoint", (n) => `took note of ${plural(n, "checkpoint")}`],
  ["directive", (n) => `gave ${plural(n, "directive")}`], ["answer", (n) => `got ${plural(n, "answer")}`], ["put-aside", (n) => `put ${plural(n, "node")} aside`],
];

function summary(hour) {
  const kinds = hour ? hour.kinds : {};
  const parts = DID.filter(([name]) => kinds[name]).map(([name, text]) => text(kinds[name]));
  if (!parts.length) return "In the last hour nothing had to be decided.";
  const last = parts.pop();
  const lost = hour.lost_gpu_ms >= 1000 ? [" ", h("span", { class: "nowrap" }, gpuTime(hour.lost_gpu_ms)), " had to be done again."] : null;
  const during = hour.since_ms ? `the last ${span(now() - hour.since_ms)}` : "the last hour";
  const who = observes ? observes.scheduler : "antiphon";
  return [`In ${during} ${who} ${parts.length ? `${parts.join(", ")} and ${last}` : last}.`, lost];
}

/** How busy GPUs are by their own word, where somebody hears it. */
function measured(devices) {
  if (!devices) return " How busy GPUs are is not measured on this server.";
  const down = devices.held_down ? `; the clocks of ${count(devices.held_down)} are held down by heat or power` : "";
  return [" Measured on the device, ", h("b", null, `${devices.mean_percent} % busy`), ` in the mean of ${plural(devices.measured, "GPU")}${down}.`];
}

function bar(counts) {
  const total = counts.total || 1;
  return h("div", { class: "meter", role: "img", "aria-label": STATES.map(([name, word]) => `${word} ${gpus(counts[name])}`).join(", ") },
    STATES.map(([name, , fill]) => (counts[name] ? h("i", { class: fill, style: { width: `${(100 * counts[name]) / total}%` } }) : null)));
}

/** What antiphon would do with a cluster that it only observes. */
function proposed(proposal) {
  if (proposal.unknown) return h("span", { class: "bad" }, `It is not known: ${proposal.unknown}`);
  const one = (line, ...rest) => h("li", { "data-would": line.job }, jobLink(line.job, line.name), " ", ...rest);
  const lines = [
    ...proposal.starts.map((line) => one(line, `start on ${line.on}`, line.gpus_thousandths ? "" : " (no GPUs)", line.against ? h("span", { class: "warn" }, `, ${line.against}`) : "")),
    ...proposal.stops.map((line) => one(line, `give way: ${line.why}`, line.unsaved_gpu_ms >= 1000 ? h("span", { class: "muted" }, `; ${gpuTime(line.unsaved_gpu_ms)} to do again, as far as checkpoints were seen`) : "")),
    ...proposal.nodes.map((text) => h("li", null, text)),
  ];
  return lines.length ? h("ul", { class: "would" }, lines) : h("span", { class: "muted" }, `Nothing: ${proposal.scheduler} has placed what can be placed, as antiphon sees it.`);
}

/** Opens the page; returns what closes it. */
export function open(main) {
  let rows = new Map();
  let four = null;
  const top = h("div", { class: "head" });
  const cards = h("div", { class: "grid numbers" }, numbers(null));
  const gpuBody = h("div", { class: "body stack" });
  const queueBody = h("div", { class: "flush scroll" });
  const storyBody = h("div");
  const day = timeChart("GPUs, the last day", "gpus", 150, () => samples(rows), null);
  const wouldBody = h("div", { class: "body" });
  const would = panel("What antiphon would do now", h("a", { href: "#/queue" }, "all jobs"), wouldBody);
  would.hidden = true;
  const page = h("div", { class: "stack" }, top, would, cards,
    h("div", { class: "grid cols-half" }, panel("GPUs now", h("a", { href: "#/cluster" }, "each of them"), gpuBody), panel("Queue by class", h("a", { href: "#/queue" }, "all jobs"), queueBody)),
    day.node,
    panel("The last hour", h("a", { href: "#/explain" }, "explain"), storyBody));
  put(main, skeleton());

  const four_ = async () => {
    try {
      four = await get("/v1/numbers");
    } catch (error) {
      four = error instanceof Problem && error.status === 404 ? null : four;
    }
    const note = four && four.gate && !four.gate.open;
    put(cards, numbers(four));
    gate.hidden = !note;
    if (note) put(gate, h("div", null, h("b", null, "The gate is shut: "), `new best-effort jobs are accepted and kept back. ${four.gate.why ? `${four.gate.why}.` : ""}`));
  };
  const gate = h("div", { class: "note warn", hidden: true, role: "status" });
  page.insertBefore(gate, cards);

  function draw() {
    const status = rows.get("status");
    if (!status) return;
    if (!page.isConnected) put(main, page);
    const classes = Object.fromEntries(kind(rows, "class/"));
    const sum = (state) => CLASSES.reduce((total, name) => total + ((classes[name] || {})[state] || 0), 0);
    const proposal = rows.get("proposal");
    would.hidden = !proposal;
    if (proposal) put(wouldBody, proposed(proposal));
    const mode = observes ? h("span", { class: "warn" }, "◎ observes") : { deciding: h("span", { class: "good" }, "✓ deciding"), paused: h("span", { class: "warn" }, "❙❙ paused"), safe: h("span", { class: "bad" }, "✕ safe mode") }[status.mode];
    put(top, h("h1", null, "Now"),
      h("span", { class: "sub" }, mode, status.reason ? `: ${status.reason}` : "", " · ", h("span", { "data-count": "running" }, plural(sum("running") + sum("starting") + sum("stopping"), "job runs", "jobs run")), ", ", h("span", { "data-count": "pending" }, plural(sum("pending"), "waits", "wait")),
        sum("held") ? `, ${count(sum("held"))} on hold` : ""),
      h("span", { class: "push muted" }, `antiphon ${status.version} · ${status.backend}${observes ? ", observed" : " backend"}${status.gpus_virtual ? " · GPUs are virtual" : ""}`));

    const types = kind(rows, "gpus/");
    const all = types.reduce((total, [, counts]) => { for (const key of Object.keys(counts)) total[key] = (total[key] || 0) + counts[key]; return total; }, {});
    put(gpuBody, types.length ? [
      h("div", null, h("div", { class: "bignum" }, h("b", { "data-gpus": "busy" }, gpus(all.busy)), ` of ${gpus(all.total)} GPUs work`)),
      bar(all),
      h("div", { class: "legend" }, STATES.map(([name, word, fill]) => h("span", null, h("i", { class: `sw ${fill}` }), word, " ", h("b", null, gpus(all[name]))))),
      types.length > 1 ? h("table", null, h("tbody", null, types.map(([name, counts]) => h("tr", null, h("td", null, name), h("td", { style: { width: "50%" } }, bar(counts)), h("td", { class: "num" }, `${gpus(counts.busy)} / ${gpus(counts.total)}`))))) : h("div", { class: "muted" }, types[0][0]),
      h("div", { class: "muted", "data-devices": "" }, "Working means held by an attempt.", simulated() ? "" : measured(rows.get("devices"))),
    ] : empty("No GPUs", "The backend offers no node with GPUs. Jobs without GPUs run all the same."));

    const line = (name) => { const of = classes[name] || {}; return [of.pending || 0, (of.starting || 0) + (of.running || 0) + (of.stopping || 0), of.held || 0]; };
    const ended = rows.get("ended") || {};
    put(queueBody, h("table", null,
      h("thead", null, h("tr", null, h("th", null, "Class"), h("th", { class: "num" }, "Waiting"), h("th", { class: "num" }, "Running"), h("th", { class: "num" }, "On hold"))),
      h("tbody", null, CLASSES.map((name) => h("tr", null, h("td", null, h("a", { href: `#/queue?class=${name}` }, name)), line(name).map((n) => h("td", { class: n ? "num" : "num muted" }, count(n))))))),
      h("div", { class: "sum muted", style: { "padding-top": "8px" } }, `Remembered: ${count(ended.succeeded || 0)} succeeded, ${count(ended.failed || 0)} failed, ${count(ended.canceled || 0)} canceled`));

    const told = kind(rows, "told/").reverse().slice(0, 30);
    put(storyBody, h("p", { class: "sum" }, summary(rows.get("hour"))),
      told.length ? h("ol", { class: "story" }, told.map(([, one]) => h("li", null, at(one.at_ms), way(one.way), h("div", { class: "text" }, sentence(one), h("a", { class: "why", href: `#/explain/${one.seq}` }, "explain")))))
        : empty("Nothing happened in the last hour", simulated() ? "Nothing in the trace, that is." : observes ? "What is seen stands here." : ["Submit a job with ", h("code", null, "antiphon submit job.toml"), ", and what becomes of it stands here."]));
  }

  const stop = live({ page: "now" }, (next, changed) => {
    rows = next;
    draw();
    if (!changed || [...changed].some((key) => key.startsWith("sample/") || key.startsWith("gpus/"))) day.draw();
  }, (error) => put(main, problem(error)));
  four_();
  const every = setInterval(four_, 15000);
  return () => { stop(); clearInterval(every); };
}

function samples(rows) {
  const found = kind(rows, "sample/").map(([, values]) => values);
  const gpuTotals = kind(rows, "gpus/").map(([, counts]) => counts);
  const sum = (key) => gpuTotals.reduce((total, counts) => total + counts[key], 0);
  // The newest sample may be of this very moment.
  if (found.length && found[found.length - 1][0] >= now()) found.pop();
  found.push([now(), sum("busy"), sum("held"), sum("idle"), sum("drained"), sum("down")]);
  const series = [["Working", 1, "var(--c0)"], ["Held back", 2, "var(--c1)"], ["Drained", 4, "var(--ink-3)"], ["Down", 5, "var(--bad)"], ["Idle", 3, "var(--idle)"]];
  return {
    stacked: true, steps: true, from: found.length ? found[0][0] : now() - 60000, until: found[found.length - 1][0], unit: "GPUs", digits: (value) => figure(value),
    series: series.map(([name, index, color]) => ({ name, color, faint: false, points: found.map((values) => [values[0], values[index] / 1000]) }))
      .filter((one, index) => index === 0 || one.points.some(([, value]) => value)),
  };
}

