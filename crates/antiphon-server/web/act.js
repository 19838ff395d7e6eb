// What a person does to a job: a dialog that says what it costs, then one command.

import { get, me, observes, post } from "./api.js";
import { h, problem, put } from "./dom.js";
import { figure, gpuTime, gpus, now, simulated, span } from "./format.js";

const runs = (job) => ["starting", "running", "stopping", "resizing"].includes(job.state);
const CLASSES = ["service", "production", "standard", "best-effort"];
const ended = (job) => ["succeeded", "failed", "canceled"].includes(job.state);

/** What can be done to a job in its state: name, title, what follows, whether it loses work. */
const ACTIONS = [
  { name: "hold", title: "Hold", when: (job) => !ended(job) && job.state !== "held", stops: runs, text: (job) => (runs(job) ? "It saves a checkpoint if its trainer can, stops, and waits until it is released." : "It keeps its place and does not start until it is released.") },
  { name: "release", title: "Release", when: (job) => job.state === "held", stops: () => false, text: () => "It goes back to its place in the queue." },
  { name: "preempt", title: "Preempt", when: (job) => ["starting", "running"].includes(job.state), stops: () => true, text: () => "It saves a checkpoint if its trainer can, stops, and goes back to its place in the queue. It may start again at once." },
  { name: "resize", title: "Resize", when: (job) => job.state === "running", stops: () => false, ask: true, text: () => "Its trainer gets a directive to go on with so many ranks. A trainer that cannot says so, and goes on as before." },
  { name: "class", title: "Class", when: (job) => ["pending", "held"].includes(job.state), stops: () => false, choose: true, text: () => "It goes to the place in the queue that its new class has, by when it was submitted. Production and service count against the team's quota." },
  { name: "cancel", title: "Cancel", when: (job) => !ended(job), stops: runs, danger: true, text: () => "It ends for good. Its checkpoints and its output stay." },
];

/** Buttons for what can be done now. */
export function buttons(job, done) {
  if (simulated()) return h("span", { class: "muted" }, "A simulation runs by itself: nothing can be changed in it.");
  if (observes) return h("span", { class: "muted" }, `antiphon only observes: ${observes.scheduler}'s own commands change it.`);
  if (me && me.role === "viewer") return h("span", { class: "muted" }, "Your token may look, and change nothing.");
  const possible = ACTIONS.filter((action) => action.when(job));
  if (!possible.length) return h("span", { class: "muted" }, "It has ended: there is nothing left to do.");
  return h("div", { class: "actions" }, possible.map((action) =>
    h("button", { class: `btn small${action.danger ? " danger" : ""}`, type: "button", "data-act": action.name, on: { click: (event) => { event.stopPropagation(); confirm(action, job, done); } } }, action.title)));
}

/** What is lost, as far as it is known. */
function costs(job) {
  const cost = job.cost_of_stopping;
  if (!cost) return null;
  // What is unsaved grows while nobody saves.
  const unsaved = cost.since_ms ? (cost.gpus_thousandths / 1000) * Math.max(0, now() - cost.since_ms) : cost.unsaved_gpu_ms;
  const kept = cost.checkpoint_step === null || cost.checkpoint_step === undefined ? "it has saved no checkpoint" : `it goes on from the checkpoint of step ${figure(cost.checkpoint_step)}`;
  return h("div", { class: "cost", "data-cost": "" },
    h("div", null, "Not saved yet: ", h("b", null, gpuTime(unsaved)), cost.since_ms ? ` in ${span(now() - cost.since_ms)} on ${gpus(cost.gpus_thousandths)} GPUs` : ""),
    h("div", null, `Another start: about ${gpuTime(cost.restart_gpu_ms)}; ${kept}.`),
    h("div", null, cost.saves ? "Its trainer is attached and saves first when it is asked to, so little of this is lost." : "Its trainer is not attached, so nothing is saved first."));
}

async function confirm(action, job, done) {
  const dialog = h("dialog", { "aria-labelledby": "act-title" });
  const body = h("div", { class: "in" });
  dialog.append(body);
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  const ranks = action.ask ? h("input", { type: "number", min: 1, max: 100000, value: Math.max(1, Math.round(job.gpus_thousandths / 1000)), id: "act-ranks" }) : null;
  const classes = action.choose ? h("select", { id: "act-class", "aria-label": "Class" }, CLASSES.map((name) => h("option", { value: name, selected: name === job.class }, name))) : null;
  const refusal = h("div");
  const go = h("button", { class: `btn ${action.danger ? "danger" : "primary"}`, type: "button", "data-confirm": action.name }, `${action.title} ${job.id}`);
  go.addEventListener("click", async () => {
    go.disabled = true;
    try {
      const path = `/v1/jobs/${encodeURIComponent(job.id)}`;
      if (action.ask) await post(`${path}/directives`, { do: "resize", ranks: Number(ranks.value), reason: "asked on the dashboard" });
      else await post(`${path}/${action.name}`, classes ? { class: classes.value } : undefined);
      dialog.close();
      done?.();
    } catch (error) {
      go.disabled = false;
      put(refusal, problem(error));
    }
  });
  const loss = h("div");
  put(body,
    h("h1", { id: "act-title" }, `${action.title} `, h("span", { class: "jobname" }, job.name), "?"),
    h("p", null, action.text(job)), loss,
    ranks ? h("label", { for: "act-ranks" }, "Ranks ", ranks) : null,
    classes ? h("label", { for: "act-class" }, "Class ", classes) : null,
    refusal,
    h("div", { class: "row" }, h("button", { class: "btn", type: "button", on: { click: () => dialog.close() } }, "Leave it"), go));
  if (action.stops(job)) {
    put(loss, costs(job) || h("div", { class: "cost" }, "It has not started yet: nothing is lost."));
    // What is shown in a list may be a second old.
    get(`/v1/jobs/${encodeURIComponent(job.id)}`).then((detail) => { if (detail.cost_of_stopping) put(loss, costs(detail)); }, () => {});
  }
  dialog.showModal();
  go.focus();
}
