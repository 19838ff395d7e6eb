// Teams: what each may hold, holds and has used; budgets and how fast they burn; who lent; whose the GPU-time was, hour by hour.

import { kind, live } from "./api.js";
import { COLORS, teamColors, timeChart } from "./chart.js";
import { csv, empty, h, panel, problem, put, skeleton } from "./dom.js";
import { at, figure, gpuTime, gpus, now, span } from "./format.js";

const HOUR = 3600000;
const sum = (record) => Object.values(record || {}).reduce((total, value) => total + value, 0);
/** What a team may hold: the sum over types where no one number stands for all. */
const total = (record) => (record && record["*"] !== undefined ? record["*"] : sum(record));

/** Opens the page; returns what closes it. */
export function open(main) {
  let rows = new Map();
  const teams = () => kind(rows, "team/").map(([, row]) => row).sort((a, b) => a.place - b.place);
  const table = h("div", { class: "flush scroll" });
  const lending = h("div", { class: "body scroll" });
  const hours = timeChart("GPU-hours an hour, by team", "team-hours", 190, () => byHour(teams()), h("span", null, "seven days; a team counts with its parts"));
  const parts = timeChart("Part of all GPU-time, rolling day", "team-parts", 190, () => rolling(teams()), h("span", null, "fair is when lines follow weights"));
  const burn = timeChart("Budget used, rolling week", "team-budgets", 190, () => budgets(teams()), h("span", null, "100 % is used up"));
  const page = h("div", { class: "stack" }, h("div", { class: "head", style: { "margin-bottom": 0 } }, h("h1", null, "Teams"), h("span", { class: "sub" }, "quota is what a team gets back when it asks; what is idle of it others borrow")),
    panel("Holdings and use", csv("teams", () => asTable(teams())), table),
    h("div", { class: "grid cols-half" }, hours.node, parts.node),
    h("div", { class: "grid cols-half" }, burn.node, panel("Lent and borrowed", null, lending)));
  put(main, skeleton());

  function draw() {
    const all = teams();
    if (!page.isConnected) put(main, page);
    put(table, all.length ? h("table", { class: "cards" },
      h("thead", null, h("tr", null, h("th", null, "Team"), h("th", null, "Holds of quota"), h("th", { class: "num" }, "Weight"), h("th", { class: "num" }, "Share place"), h("th", { class: "num" }, "Used in 7 days"), h("th", null, "Weekly budget"), h("th", null, "Budget lasts"))),
      h("tbody", null, all.map((row) => line(row.is, row, Math.max(1, ...all.map((other) => other.is.allocated_thousandths))))))
      : empty("No teams yet", "A team appears with its first job, or set them up in `antiphon.toml`."));
    put(lending, lendingOf(all));
    hours.draw(); parts.draw(); burn.draw();
  }

  function line(team, row, most) {
    const quota = total(team.quota_thousandths);
    const limit = total(team.limit_thousandths);
    // Who has no quota is seen beside the team that holds most.
    const scale = quota || limit ? Math.max(quota, limit, team.allocated_thousandths, 1) : most;
    const within = Math.min(team.allocated_thousandths, quota || team.allocated_thousandths);
    const over = quota ? Math.max(0, team.allocated_thousandths - quota) : 0;
    const used = sum(team.used_gpu_ms);
    const budget = sum(team.budget_gpu_ms);
    const left = lasts(team, row);
    return h("tr", null,
      h("td", null, h("a", { class: "jobname", href: `#/queue?team=${encodeURIComponent(team.name)}` }, team.name), team.parent ? h("div", { class: "jobid" }, `part of ${team.parent}`) : null),
      h("td", { style: { "min-width": "180px" } }, h("div", { class: "meter", role: "img", "aria-label": `holds ${gpus(team.allocated_thousandths)} of ${gpus(quota)}` }, h("i", { class: "f-busy", style: { width: `${(100 * within) / scale}%` } }), h("i", { class: "f-held", style: { width: `${(100 * over) / scale}%`, border: 0 } })),
        h("div", { class: "jobid", "data-team": team.name }, `${gpus(team.allocated_thousandths)} GPUs`, quota ? ` of ${gpus(quota)}` : " · no quota", over ? `, ${gpus(over)} borrowed` : "", limit ? ` · never over ${gpus(limit)}` : "")),
      h("td", { class: "num inline", "data-l": "weight" }, figure(team.weight)), h("td", { class: "num inline", "data-l": "share place" }, figure(team.share_place)), h("td", { class: "num inline", "data-l": "7 days" }, gpuTime(used)),
      h("td", { class: "inline", "data-l": "weekly budget", style: { "min-width": "140px" } }, budget ? [h("div", { class: "meter" }, h("i", { class: used >= budget ? "f-down" : "f-busy", style: { width: `${Math.min(100, (100 * used) / budget)}%` } })), h("div", { class: "jobid" }, `${Math.round((100 * used) / budget)} % of ${gpuTime(budget)}`)] : h("span", { class: "muted" }, "none")),
      h("td", { class: budget ? "inline" : "inline wide" }, left));
  }

  const stop = live({ page: "teams" }, (next) => { rows = next; draw(); }, (error) => put(main, problem(error)));
  return stop;
}

/** When a budget is used up at the pace of the last day, while what is older than a week falls out of it. */
function lasts(team, row) {
  const budget = sum(team.budget_gpu_ms);
  if (!budget) return h("span", { class: "muted" }, "–");
  if (team.budget_free_ms) return [h("span", { class: "bad" }, "✕ used up"), ", free again ", at(team.budget_free_ms)];
  const pace = row.hours.slice(1, 25).reduce((a, b) => a + b, 0) / 24;
  let used = sum(team.used_gpu_ms);
  if (used >= budget) return h("span", { class: "bad" }, "✕ used up");
  for (let hour = 1; hour <= 168; hour += 1) {
    used += pace - (row.hours[168 - hour] || 0);
    if (used >= budget) return h("span", { class: hour < 24 ? "warn" : "" }, `about ${span(hour * HOUR)} at the pace of the last day`);
  }
  return h("span", { class: "good" }, "✓ the week at this pace");
}

/** Teams without a parent: what their parts use is counted in them. */
const roots = (teams) => teams.filter((row) => !row.is.parent);
const range = (teams) => ({ from: (teams[0] ? teams[0].hour_ms : now()) - 167 * HOUR, until: (teams[0] ? teams[0].hour_ms : now()) + HOUR });

/** From the first hour in which anything was used: a new server has no empty week to show. */
function used(teams) {
  const most = Math.max(2, ...teams.map((row) => row.hours.findLastIndex((value) => value > 0) + 2));
  return { ...range(teams), from: Math.max(range(teams).from, (teams[0] ? teams[0].hour_ms : now()) - most * HOUR), hours: Math.min(168, most) };
}

/** The teams that used most, and all others as one: more than some colors nobody tells apart. */
function largest(teams) {
  if (teams.length <= COLORS.length) return teams;
  const sorted = [...teams].sort((a, b) => sum(b.is.used_gpu_ms) - sum(a.is.used_gpu_ms));
  const [kept, rest] = [sorted.slice(0, COLORS.length - 1), sorted.slice(COLORS.length - 1)];
  const hours = rest[0].hours.map((_, age) => rest.reduce((total, row) => total + row.hours[age], 0));
  return [...kept.sort((a, b) => a.place - b.place), { is: { name: `${rest.length} other teams` }, hour_ms: rest[0].hour_ms, hours }];
}

function byHour(teams) {
  const shown = largest(roots(teams));
  const colors = teamColors(shown.map((row) => row.is.name));
  const { from, until, hours } = used(shown);
  return { stacked: true, unit: "GPU-h", from, until, series: shown.map((row) => ({ name: row.is.name, color: colors.get(row.is.name), points: points(row, hours, (value) => value / HOUR).flatMap(([at_, value]) => [[at_, value], [at_ + HOUR - 1, value]]) })) };
}

const points = (row, hours, of) => row.hours.slice(0, hours).map((value, age) => [row.hour_ms - age * HOUR, of(value, age)]).reverse();

function rolling(teams) {
  const shown = largest(roots(teams));
  const colors = teamColors(shown.map((row) => row.is.name));
  const { from, until, hours } = used(shown);
  const day = (row, age) => row.hours.slice(age, age + 24).reduce((a, b) => a + b, 0);
  const all = (age) => shown.reduce((total, row) => total + day(row, age), 0);
  return { unit: "%", from, until, series: shown.map((row) => ({ name: row.is.name, color: colors.get(row.is.name), points: points(row, hours, (_, age) => (all(age) ? (100 * day(row, age)) / all(age) : null)) })) };
}

function budgets(teams) {
  const shown = teams.filter((row) => sum(row.is.budget_gpu_ms)).slice(0, COLORS.length);
  // Those of the other charts where they are among them.
  const colors = teamColors((roots(teams).length <= COLORS.length ? roots(teams) : shown).map((row) => row.is.name));
  shown.forEach((row) => { if (!colors.has(row.is.name)) colors.set(row.is.name, "var(--ink-3)"); });
  const { from, until, hours } = used(shown);
  const week = (row, age) => row.hours.slice(age, age + 168).reduce((a, b) => a + b, 0);
  return { unit: "%", redline: shown.length ? 100 : undefined, from, until, series: shown.map((row) => ({ name: row.is.name, color: colors.get(row.is.name), points: points(row, hours, (_, age) => (100 * week(row, age)) / sum(row.is.budget_gpu_ms)) })) };
}

function lendingOf(teams) {
  const shown = teams.filter((row) => row.is.lent_gpu_ms || row.is.borrowed_gpu_ms);
  if (!shown.length) return empty("Nobody has lent or borrowed", "It begins when a team with a quota leaves some of it to others, or holds more than its own.");
  const most = Math.max(...shown.map((row) => Math.max(row.is.lent_gpu_ms, row.is.borrowed_gpu_ms)));
  const bar = (value, fill, word) => h("div", { class: "meter", role: "img", "aria-label": `${word} ${gpuTime(value)}` }, h("i", { class: fill, style: { width: `${(100 * value) / most}%` } }));
  return h("table", { class: "lending" }, h("thead", null, h("tr", null, h("th", null, "Team"), h("th", { class: "bars" }), h("th", { class: "num" }, "Lent"), h("th", { class: "bars" }), h("th", { class: "num" }, "Borrowed"))),
    h("tbody", null, shown.map((row) => h("tr", null, h("td", null, row.is.name), h("td", { class: "bars", style: { width: "28%" } }, bar(row.is.lent_gpu_ms, "f-busy", "lent")), h("td", { class: "num" }, gpuTime(row.is.lent_gpu_ms)), h("td", { class: "bars", style: { width: "28%" } }, bar(row.is.borrowed_gpu_ms, "f-held", "borrowed")), h("td", { class: "num" }, gpuTime(row.is.borrowed_gpu_ms))))));
}

const asTable = (teams) => [["team", "parent", "weight", "quota_gpus", "limit_gpus", "allocated_gpus", "used_gpu_hours_7d", "budget_gpu_hours", "lent_gpu_hours", "borrowed_gpu_hours", "share_place"],
  ...teams.map(({ is }) => [is.name, is.parent, is.weight, total(is.quota_thousandths) / 1000, total(is.limit_thousandths) / 1000, is.allocated_thousandths / 1000, sum(is.used_gpu_ms) / HOUR, sum(is.budget_gpu_ms) / HOUR, is.lent_gpu_ms / HOUR, is.borrowed_gpu_ms / HOUR, is.share_place])];
