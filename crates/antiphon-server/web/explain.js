// Explain: choose something that happened, and see the state it was made in, what was chosen, and from what.

import { get, live } from "./api.js";
import { empty, h, panel, problem, put, skeleton, ticked } from "./dom.js";
import { at, count, dollars, gpuTime, gpus, jobLink, plural, sentence, way } from "./format.js";

const WAYS = [["", "all"], ["decided", "▶ decided"], ["told", "◀ told"], ["asked", "● asked"], ["seen", "■ seen"]];

/** Opens the page; returns what closes it. */
export function open(main, place) {
  let wanted = place.query.get("way") || "";
  let job = place.query.get("job") || "";
  let chosen = Number(place.subject) || 0;
  let listed = [];
  let before = null;
  let shown = 0;
  const list = h("div", { class: "tall" });
  const detail = h("div", { class: "stack" });
  const seg = h("div", { class: "seg", role: "group", "aria-label": "Direction" });
  const again = h("button", { class: "csv", type: "button", on: { click: () => load(true) } }, "look again");
  const search = h("input", { type: "search", placeholder: "Only of one job: its name or id", "aria-label": "Only of one job", value: job });
  search.addEventListener("change", () => { job = search.value.trim(); load(true); });
  put(main, h("div", null,
    h("div", { class: "head" }, h("h1", null, "Explain"), h("span", { class: "sub" }, "choose what happened, and see what there was to choose from")),
    h("div", { class: "bar" }, seg, search),
    h("div", { class: "split" }, panel("What happened", again, list), detail)));

  function draw() {
    put(seg, WAYS.map(([name, text]) => h("button", { type: "button", "aria-pressed": wanted === name, on: { click: () => { wanted = name; load(true); } } }, text)));
    put(list, listed.length ? h("ol", { class: "story pickable", role: "listbox", "aria-label": "What happened" }, listed.map((told) =>
      h("li", { role: "option", tabindex: 0, "data-row": told.seq, "aria-selected": told.seq === chosen, on: { click: (event) => { if (!event.target.closest("a")) pick(told.seq); }, keydown: (event) => { if (event.key === "Enter" && event.target === event.currentTarget) pick(told.seq); } } },
        at(told.at_ms), way(told.way), h("div", { class: "text" }, sentence(told)))))
      : empty("Nothing of that kind", "It has not happened since the part of the log that is kept at hand begins."),
    before ? h("div", { class: "sum" }, h("button", { class: "btn small", type: "button", on: { click: () => load(false) } }, "Earlier")) : null);
  }

  async function load(anew) {
    try {
      const query = new URLSearchParams(Object.entries({ way: wanted, job, before: anew ? "" : before, limit: 100 }).filter(([, value]) => value));
      const page = await get(`/v1/story?${query}`);
      listed = anew ? page.happenings : [...listed, ...page.happenings];
      before = page.before;
      draw();
      if (!chosen && listed.length) pick((listed.find((told) => ["stop", "start", "finding"].includes(told.kind)) || listed[0]).seq);
    } catch (error) {
      put(list, h("div", { class: "body" }, problem(error)));
    }
  }

  async function pick(seq) {
    chosen = seq;
    history.replaceState(null, "", `#/explain/${seq}`);
    for (const item of list.querySelectorAll("[data-row]")) item.setAttribute("aria-selected", String(Number(item.dataset.row) === seq));
    const ticket = (shown += 1);
    put(detail, skeleton());
    try {
      const told = await get(`/v1/explain/${seq}`);
      if (ticket === shown) put(detail, explained(told));
    } catch (error) {
      if (ticket === shown) put(detail, problem(error));
    }
  }

  draw();
  load(true);
  if (chosen) pick(chosen);
  else put(detail, h("section", { class: "panel" }, empty("Choose something on the left", "The log is replayed to the moment before it.")));
  const stop = live({ page: "now" }, (rows) => {
    const newest = listed.length ? listed[0].seq : 0;
    const fresh = [...rows].filter(([key, told]) => key.startsWith("told/") && told.seq > newest && (!wanted || told.way === wanted)).length;
    again.textContent = fresh && listed.length ? `${count(fresh)} new, look again` : "look again";
  }, () => {});
  return () => { shown += 1; stop(); };
}

function explained(told) {
  return [
    panel(`Event ${count(told.seq)}`, [told.kind, " ", at(told.at_ms)], h("ol", { class: "story two" }, told.happenings.length
      ? told.happenings.map((one) => h("li", null, way(one.way), h("div", { class: "text" }, sentence(one)))) : h("li", null, h("span"), h("div", { class: "text muted" }, "It says nothing that people would read.")))),
    told.choices.map(choice),
    stateBefore(told.before),
    h("section", { class: "panel" }, h("details", null, h("summary", null, "The event as it stands in the log"), h("pre", { class: "raw" }, JSON.stringify(told.event, null, 2)))),
  ];
}

const TITLES = { place: "Where it starts", victim: "Who gives way", remedy: "What would help" };

function choice(one) {
  return panel(TITLES[one.kind], jobLink(one.job), h("div", { class: "body stack", style: { gap: "8px" } },
    h("p", { class: "muted" }, one.question),
    one.options.map((option, index) => h("div", { class: option.chosen ? "option chosen" : "option" },
      h("div", null, option.chosen ? h("b", { class: "good" }, "✓ taken ") : one.kind === "remedy" ? `${index + 1}. ` : "", h("span", { class: one.kind === "place" ? "mono" : "" }, ticked(option.what))),
      option.score.length ? h("div", { class: "score" }, option.score.map((line) => h("span", null, `${line.name.replace(" in micro-dollars", "")} `, h("b", null, line.name.endsWith("micro-dollars") ? dollars(line.points) : count(line.points))))) : null,
      option.against ? h("div", { class: "muted" }, option.against) : null)),
    one.note ? h("p", { class: "muted" }, one.note) : null));
}

function stateBefore(before) {
  return panel("The state before it", `${plural(before.running, "job")} held GPUs, ${plural(before.waiting, "job")} waited`,
    h("div", { class: "flush scroll" }, h("table", null, h("thead", null, h("tr", null, h("th", null, "GPU type"), ["All", "Working", "Held back", "Idle"].map((name) => h("th", { class: "num" }, name)))),
      h("tbody", null, before.gpus.map((one) => h("tr", null, h("td", null, one.gpu_type), [one.total, one.busy, one.held, one.idle].map((value) => h("td", { class: "num" }, gpus(value)))))))),
    before.queue.length ? h("div", { class: "flush scroll" }, h("table", { class: "cards" }, h("thead", null, h("tr", null, h("th", null, "Queue as it was"), h("th", null, "Class"), h("th", null, "Team"), h("th", { class: "num" }, "GPUs"), h("th", null, "Why it waited"))),
      h("tbody", null, before.queue.map((job) => h("tr", null, h("td", null, h("span", { class: "jobname" }, jobLink(job.job, job.name)), h("div", { class: "jobid" }, job.job)), h("td", { class: "inline" }, job.class), h("td", { class: "inline" }, job.team), h("td", { class: "num inline", "data-l": "GPUs" }, gpus(job.gpus_thousandths)), h("td", { class: "reason" }, job.starts ? [h("b", { class: "good" }, "✓ starts with this event"), " "] : null, h("div", { class: "clamp", title: job.reason }, ticked(job.reason)))))))) : h("p", { class: "sum" }, "Nobody waited."),
    before.teams.length ? h("div", { class: "flush scroll" }, h("table", null, h("thead", null, h("tr", null, h("th", null, "Team"), h("th", { class: "num" }, "Share place"), h("th", { class: "num", title: "GPU-time by age and GPU weight, and an hour of what it held" }, "Use that counts"), h("th", { class: "num" }, "Held"))),
      h("tbody", null, before.teams.map((team) => h("tr", null, h("td", null, team.name), h("td", { class: "num" }, count(team.place)), h("td", { class: "num" }, gpuTime(team.share_gpu_ms)), h("td", { class: "num" }, gpus(team.allocated_thousandths))))))) : null);
}
