// Queue: the jobs in service order, a window at a time, with reasons, starts, and what can be done.

import { buttons } from "./act.js";
import { get, live } from "./api.js";
import { empty, h, problem, put, skeleton, ticked } from "./dom.js";
import { at, count, gpus, jobLink, now, simulated, span, starts, state } from "./format.js";

const STATES = ["pending", "starting", "running", "stopping", "held", "succeeded", "failed", "canceled"];
const CLASSES = ["service", "production", "standard", "best-effort"];
const LIMIT = 50;

/** Opens the page; returns what closes it. */
export function open(main, place) {
  const asked = { state: place.query.get("state") || "", class: place.query.get("class") || "", team: place.query.get("team") || "", q: place.query.get("q") || "", all: place.query.has("all"), offset: Number(place.query.get("offset")) || 0 };
  let rows = new Map();
  let chosen = "";
  let told = null;
  let stop = () => {};
  let typing = 0;

  const search = h("input", { type: "search", placeholder: "Search name, id, user or team", "aria-label": "Search jobs", value: asked.q });
  const choose = (name, options, label) => h("select", { "aria-label": label, on: { change: (event) => { asked[name] = event.target.value; asked.offset = 0; follow(); } } },
    h("option", { value: "" }, `any ${label.toLowerCase()}`), options.map((option) => h("option", { value: option, selected: asked[name] === option }, option)));
  const ended = h("input", { type: "checkbox", checked: asked.all, on: { change: () => { asked.all = ended.checked; asked.offset = 0; follow(); } } });
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => { asked.q = search.value.trim(); asked.offset = 0; follow(); }, 180);
  });
  const total = h("span", { class: "push muted", role: "status" });
  const team = h("span");
  const body = h("div");
  const pager = h("div", { class: "bar", style: { "margin-top": "12px", "justify-content": "flex-end" } });
  const page = h("div", null, h("div", { class: "head" }, h("h1", null, "Queue"), h("span", { class: "sub" }, "in the order in which jobs are served")),
    h("div", { class: "bar" }, search, choose("state", STATES, "State"), choose("class", CLASSES, "Class"), team, h("label", { class: "check" }, ended, "ended too"), total),
    h("section", { class: "panel" }, body), pager);
  put(main, page);
  put(body, h("div", { class: "body" }, skeleton()));

  function follow() {
    stop();
    const query = new URLSearchParams(Object.entries(asked).filter(([, value]) => value));
    history.replaceState(null, "", `#/queue${query.size ? `?${query}` : ""}`);
    put(team, asked.team ? h("button", { class: "btn small", type: "button", on: { click: () => { asked.team = ""; follow(); } } }, `team ${asked.team} ✕`) : "");
    stop = live({ page: "queue", limit: LIMIT, ...asked }, (next) => { rows = next; draw(); }, (error) => put(body, h("div", { class: "body" }, problem(error))));
  }

  function toggle(id) {
    chosen = chosen === id ? "" : id;
    told = null;
    draw();
    if (chosen) explain(id);
  }

  async function explain(id) {
    try {
      const why = await get(`/v1/jobs/${encodeURIComponent(id)}/why`);
      if (chosen === id) { told = why; draw(); }
    } catch (error) {
      if (chosen === id) { told = { sentences: [], error }; draw(); }
    }
  }

  function when(job) {
    const there = job.observed && job.observed.starts_ms ? h("div", { class: "jobid" }, `there ${job.observed.starts_ms > now() ? `in ${span(job.observed.starts_ms - now())}` : "now"}`) : null;
    return [here(job), there];
  }

  function here(job) {
    if (job.state === "pending") return job.start ? h("span", { title: job.start.learned ? "as eight of ten such forecasts held" : "if nothing else comes" }, starts(job.start)) : job.slot && job.slot.at_ms ? `by ${span(job.slot.at_ms - now())}` : h("span", { class: "muted" }, "not forecast");
    if (job.ends_ms && ["running", "starting", "stopping"].includes(job.state)) return job.ends_ms > now() ? `ends in ${span(job.ends_ms - now())}` : "overdue";
    return "";
  }

  function line(id) {
    const job = rows.get(`job/${id}`);
    if (!job) return [];
    const open = chosen === id;
    const waits = job.state === "pending" || job.state === "held";
    const step = job.step && job.steps_total ? `step ${count(job.step)} of ${count(job.steps_total)}` : job.step ? `step ${count(job.step)}` : "";
    const row = h("tr", {
      class: "pick", tabindex: 0, "data-row": id, "aria-selected": open, "aria-expanded": open,
      on: { click: (event) => { if (!event.target.closest("a,button")) toggle(id); }, keydown: (event) => { if (event.key === "Enter" && event.target === event.currentTarget) toggle(id); } },
    },
    h("td", { class: "first" }, h("div", null, h("span", { class: "jobname" }, jobLink(id, job.name))), h("div", { class: "jobid" }, id, job.observed && job.observed.place ? ` · place ${count(job.observed.place)} there${job.observed.place_here ? `, ${count(job.observed.place_here)} here` : ""}` : "", job.array ? ` · array of ${job.array.first}` : "")),
    h("td", { class: "inline" }, state(job.state)),
    h("td", { class: "inline nowrap" }, job.runs_as ? [job.class, h("div", { class: "jobid" }, `runs as ${job.runs_as}`)] : job.class, job.priority ? h("div", { class: "jobid" }, `priority ${job.priority}`) : null),
    h("td", { class: "inline team" }, job.team, h("div", { class: "jobid" }, job.user)),
    h("td", { class: "num inline", "data-l": "GPUs" }, gpus(job.gpus_thousandths)),
    h("td", { class: "nowrap inline", "data-l": "for" }, span(now() - job.since_ms)),
    h("td", { class: "inline nowrap" }, when(job)),
    h("td", { class: "reason" }, job.reason ? h("div", { class: open ? "" : "clamp", title: job.reason }, ticked(job.reason)) : (waits ? "" : [job.allocation ? h("div", { class: open ? "" : "clamp", title: job.allocation }, job.allocation) : "", step ? h("div", { class: "jobid" }, step, job.loss === null || job.loss === undefined ? "" : ` · loss ${job.loss.toFixed(3)}`) : null])));
    if (!open) return [row];
    const sentences = told && told.error ? problem(told.error) : told ? h("ul", { class: "sentences" }, told.sentences.map((text) => h("li", null, ticked(text)))) : h("span", { class: "muted" }, "asking why…");
    return [row, h("tr", { class: "open" }, h("td", { colspan: 8 }, h("div", { class: "stack" }, sentences,
      h("div", { class: "actions" }, h("a", { class: "btn small", href: `#/job/${encodeURIComponent(id)}`, style: { display: "inline-flex", "align-items": "center" } }, "Open"), buttons(job, () => { if (chosen === id) explain(id); })),
      h("div", { class: "muted" }, "submitted ", at(job.submitted_ms), job.attempts ? ` · launched ${count(job.attempts)} times` : "", job.deadline ? [" · deadline ", at(job.deadline.at_ms), job.deadline.counts ? "" : " (ignored)"] : ""))))];
  }

  function draw() {
    const found = rows.get("found");
    if (!found) return;
    const focused = document.activeElement?.dataset?.row;
    const states = Object.entries(found.states).map(([name, n]) => `${count(n)} ${name}`).join(", ");
    put(total, found.total ? states : "");
    const filtered = asked.q || asked.state || asked.class || asked.team;
    put(body, found.order.length
      ? h("div", { class: "scroll" }, h("table", { class: "cards" },
        h("thead", null, h("tr", null, ["Job", "State", "Class", "Team"].map((name) => h("th", null, name)), h("th", { class: "num" }, "GPUs"), h("th", null, "For"), h("th", null, "Start or end"), h("th", null, "Reason or place"))),
        h("tbody", null, found.order.map(line))))
      : found.total ? empty("Nothing on this page", "Fewer jobs are left than when you turned to it.")
        : filtered ? empty("No job fits", "Search for less, or let ended jobs be shown too.")
          : empty("The queue is empty", simulated() ? "No job of the trace is here now." : ["Submit a job with ", h("code", null, "antiphon submit job.toml"), "."]));
    const last = Math.min(found.total, found.offset + found.limit);
    put(pager, found.total > LIMIT || found.offset ? [
      h("span", { class: "muted" }, found.total ? `${count(found.offset + 1)}–${count(last)} of ${count(found.total)}` : ""),
      turn("← Earlier", found.offset - LIMIT, found.offset > 0), turn("Later →", found.offset + LIMIT, last < found.total),
    ] : []);
    if (focused) body.querySelector(`[data-row="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  const turn = (text, offset, possible) => h("button", { class: "btn small", type: "button", disabled: !possible, on: { click: () => { asked.offset = Math.max(0, offset); chosen = ""; follow(); window.scrollTo(0, 0); } } }, text);
  follow();
  // Spans grow while nothing happens.
  const every = setInterval(() => { if (!document.querySelector("dialog[open]")) draw(); }, 5000);
  return () => { stop(); clearInterval(every); clearTimeout(typing); };
}

