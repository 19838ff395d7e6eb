// Starts the page: the token, which of the six pages is open, the keyboard, light and dark, and whether the server is reached.

import { hasToken, login, onLink, onRefused, onSimulation, post, setToken, whatIsObserved, whoAmI } from "./api.js";
import { h, problem, put, tip } from "./dom.js";
import { now as clock, plural, simulated, span, time } from "./format.js";
import * as cluster from "./cluster.js";
import * as explain from "./explain.js";
import * as job from "./job.js";
import * as now from "./now.js";
import * as queue from "./queue.js";
import * as teams from "./teams.js";

const PAGES = [
  ["now", "Now", now, "n"], ["cluster", "Cluster", cluster, "c"], ["queue", "Queue", queue, "q"],
  ["job", "Job", job, "j"], ["teams", "Teams", teams, "t"], ["explain", "Explain", explain, "e"],
];
const main = document.getElementById("main");
let close = null;
let opened = "";

function where() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [page, ...rest] = path.split("/");
  return { page: PAGES.some(([name]) => name === page) ? page : "now", subject: decodeURIComponent(rest.join("/")), query: new URLSearchParams(query || "") };
}

function go() {
  const place = where();
  const target = `${place.page}/${place.subject}`;
  // A page that changes its own filters stays open.
  if (target === opened && close) return;
  opened = target;
  if (close) close();
  close = null;
  tip("");
  if (place.page === "job" && place.subject) sessionStorage.setItem("antiphon-job", place.subject);
  const [, title, page] = PAGES.find(([name]) => name === place.page);
  document.title = `${place.page === "job" && place.subject ? place.subject : title} · antiphon`;
  for (const link of document.querySelectorAll("#pages a")) {
    if (link.dataset.page === place.page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  put(main);
  window.scrollTo(0, 0);
  try {
    close = page.open(main, place);
  } catch (error) {
    put(main, problem(error));
    throw error;
  }
}

function links() {
  put(document.getElementById("pages"), PAGES.map(([name, title]) => h("a", { href: `#/${name}`, "data-page": name }, title)));
  document.querySelector('#pages a[data-page="job"]').addEventListener("click", (event) => {
    const last = sessionStorage.getItem("antiphon-job");
    if (last) {
      event.preventDefault();
      location.hash = `#/job/${encodeURIComponent(last)}`;
    }
  });
}

function ask(error) {
  if (close) close();
  close = null;
  opened = "";
  begun = false;
  put(document.getElementById("who"));
  linked("signed out");
  const field = h("input", { type: "password", id: "token", autocomplete: "off", "aria-describedby": "token-help" });
  const refusal = h("div");
  const form = h("form", null,
    h("h1", null, "Sign in"),
    h("p", { class: "muted", id: "token-help" }, "Paste your token. On the server's own machine it lies in the file ", h("code", null, "token"), " of the state directory, and ", h("code", null, "antiphon up"), " prints an address with the token in it."),
    h("label", { for: "token" }, "Token"), field, refusal,
    h("button", { class: "btn primary", type: "submit" }, "Sign in"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await login(field.value);
      await begin();
    } catch (failure) {
      setToken("");
      put(refusal, problem(failure));
    }
  });
  put(main, h("div", { class: "login panel" }, h("div", { class: "body" }, form)));
  // Who comes for the first time is not told that something went wrong.
  if (error && (hasToken() || error.code !== "AP0502")) put(refusal, problem(error));
  setToken("");
  field.focus();
}

/* who looks */
let begun = false;
async function begin() {
  const me = await whoAmI();
  if (!me) {
    // A refusal has asked for the token by now; where nobody answers, the server may come back.
    if (!main.querySelector("form")) setTimeout(begin, 2000);
    return;
  }
  put(document.getElementById("who"), me.name ? [h("b", null, me.name), ` ${me.role}`, h("button", { class: "csv", type: "button", on: { click: leave } }, "sign out")] : []);
  begun = true;
  await banner();
  go();
}

/** Shows what holds for every page above it, or takes it away. */
function strip(id, kind, ...parts) {
  const bar = document.getElementById(id);
  bar.hidden = !kind;
  bar.className = `strip ${kind}`;
  put(bar, ...parts.filter(Boolean).map((part) => (typeof part === "string" ? h("span", null, part) : part)));
}

/* whether this server only observes: said on every page, with the age of what is seen */
let looking = 0;
async function banner() {
  clearTimeout(looking);
  const seen = await whatIsObserved();
  if (!seen) { strip("observes", ""); return; }
  looking = setTimeout(banner, 3000);
  const age = span(seen.age_ms);
  const would = seen.no_proposal ? "What antiphon would do now is not known."
    : seen.would_start || seen.would_stop ? `Now it would start ${plural(seen.would_start, "job")}${seen.would_stop ? ` and ask ${plural(seen.would_stop, "job")} to give way` : ""}.` : "Now it would do nothing.";
  strip("observes", seen.error ? "bad" : "warn", h("b", null, `antiphon only observes ${seen.scheduler} and commands nothing.`),
    seen.error ? `${seen.scheduler} does not answer: you see it as it was ${age} ago; jobs run on.` : `As it was ${age} ago.`, would,
    seen.left_out.length ? `Not shown: ${seen.left_out.join("; ")}.` : null);
}
async function leave() {
  await post("/v1/logout").catch(() => {});
  setToken("");
  location.reload();
}

/* light and dark */
const THEMES = ["system", "light", "dark"];
const SIGNS = { system: "◐", light: "○", dark: "●" };
const dark = window.matchMedia("(prefers-color-scheme: dark)");
function paint() {
  const choice = localStorage.getItem("antiphon-theme") || "system";
  const theme = choice === "system" ? (dark.matches ? "dark" : "light") : choice;
  document.documentElement.dataset.theme = theme;
  const button = document.getElementById("theme");
  button.textContent = SIGNS[choice];
  button.setAttribute("aria-label", `Colors: ${choice}`);
  window.dispatchEvent(new Event("painted"));
}
function turn() {
  const choice = localStorage.getItem("antiphon-theme") || "system";
  localStorage.setItem("antiphon-theme", THEMES[(THEMES.indexOf(choice) + 1) % THEMES.length]);
  paint();
}

/* the keyboard */
const KEYS = [
  ["g n  g c  g q", "Now, Cluster, Queue"], ["g j  g t  g e", "Job, Teams, Explain"], ["/", "search on this page"],
  ["j  k", "next and previous row"], ["Enter", "open the row"], ["← → ↑ ↓", "move in charts and among GPUs"],
  ["t", "light, dark, or as the system has it"], ["?", "this list"], ["Esc", "close"],
];
function help() {
  if (document.querySelector("dialog[open]")) return;
  const dialog = h("dialog", { "aria-label": "Keyboard shortcuts" }, h("div", { class: "in" }, h("h1", null, "Keyboard"),
    h("div", { class: "keys" }, KEYS.flatMap(([keys, text]) => [h("span", null, keys.split("  ").map((one) => [one.split(" ").map((key) => [h("kbd", null, key), " "]), " "])), h("span", null, text)])),
    h("div", { class: "row" }, h("button", { class: "btn", type: "button", on: { click: (event) => event.target.closest("dialog").close() } }, "Close"))));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
let leader = 0;
function rows(step) {
  const all = [...main.querySelectorAll("[data-row]")];
  if (!all.length) return;
  const next = all[Math.min(all.length - 1, Math.max(0, all.indexOf(document.activeElement) + step))];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || document.querySelector("dialog[open]")) return;
  if (leader && Date.now() - leader < 1500) {
    leader = 0;
    const page = PAGES.find(([, , , key]) => key === event.key);
    if (page) {
      event.preventDefault();
      document.querySelector(`#pages a[data-page="${page[0]}"]`).click();
      return;
    }
  }
  const does = {
    g: () => { leader = Date.now(); }, "?": help, t: turn, j: () => rows(1), k: () => rows(-1),
    "/": () => main.querySelector('input[type="search"]')?.focus(),
  }[event.key];
  if (does) {
    event.preventDefault();
    does();
  }
});

/* whether the server is reached */
let since = 0;
function linked(text) {
  const node = document.getElementById("link");
  node.className = `link ${text}`;
  node.querySelector("b").textContent = text;
}
onLink((link) => {
  linked(link);
  if (link === "live") {
    since = 0;
    strip("lost", "");
  } else {
    since = since || Date.now();
    strip("lost", "bad", simulated() ? "Connection lost, trying again. The simulation may have ended: start it again with `antiphon simulate --serve`." : `Connection lost, trying again. What you see is of ${time(since)}; jobs run on.`);
  }
});
onRefused(ask);

/* what is simulated, and what time it is there */
const PACES = {
  ahead: () => "runs ahead as fast as it can", times: ({ speed }) => `${speed} times as fast as a clock`,
  still: () => "stands still here", over: () => "nothing more happens",
};
function simulation() {
  const shown = simulated();
  if (!shown) { strip("simulation", ""); return; }
  strip("simulation", "info", h("span", null, "Simulation of ", h("b", null, shown.title)),
    h("span", null, "virtual time ", h("b", { "data-virtual-time": "" }, date.format(clock())), `, ${span(clock() - shown.begins_ms)} after it began`),
    h("span", null, PACES[shown.pace](shown)), h("span", { class: "push" }, "Nothing can be changed here."));
}
const date = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });
onSimulation(simulation);
setInterval(() => { if (simulated() && simulated().speed) simulation(); }, 1000);

document.getElementById("theme").addEventListener("click", turn);
document.getElementById("help").addEventListener("click", help);
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
dark.addEventListener("change", paint);
paint();
links();

/** Takes the token that an address carries, as `antiphon up` prints it; says whether there was one that counts. */
async function carried() {
  const found = location.hash.match(/^#token=([^&]+)/);
  if (!found) return false;
  history.replaceState(null, "", "#/now");
  try {
    await login(decodeURIComponent(found[1]));
    return true;
  } catch (error) {
    ask(error);
    return false;
  }
}
await carried();
window.addEventListener("hashchange", async () => {
  if (await carried()) await begin();
  else if (begun) go();
});
if (!main.querySelector("form")) begin();
