// Talks to the server: the token, requests, problems, and pages as streams of changes that find their way back by themselves.

import { setSimulation, setSkew } from "./format.js";

const KEY = "antiphon-token";
const listeners = { link: () => {}, refused: () => {}, simulation: () => {} };
let token = sessionStorage.getItem(KEY) || "";

export const onLink = (f) => { listeners.link = f; };
export const onSimulation = (f) => { listeners.simulation = f; };
export const onRefused = (f) => { listeners.refused = f; };
/** Who this browser is to the server: `{name, role, teams}`, once it is asked. */
export let me = null;
export async function whoAmI() {
  me = await get("/v1/me").catch(() => null);
  return me;
}

/** Whom this server only observes and how old what it shows is, where it does. */
export let observes = null;
export async function whatIsObserved() {
  const status = await get("/v1/status").catch(() => null);
  if (status) observes = status.observes || null;
  return observes;
}

export const hasToken = () => token !== "";
export function setToken(text) {
  token = text.trim();
  if (token) sessionStorage.setItem(KEY, token);
  else sessionStorage.removeItem(KEY);
}

/** A refusal or failure, with what to do about it. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || `the server answered ${status}`);
    this.status = status;
    this.code = body.code || "";
    this.detail = body.detail || `The server answered ${status}`;
    this.help = body.help || "";
  }
}

const headers = (more) => ({ ...(token ? { Authorization: `Bearer ${token}` } : {}), ...more });

async function checked(response) {
  const date = Date.parse(response.headers.get("date") || "");
  if (date) setSkew(date + 500 - Date.now());
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  const error = new Problem(response.status, body);
  if (response.status === 401) listeners.refused(error);
  throw error;
}

async function reach(path, options) {
  try {
    return await fetch(path, { cache: "no-store", credentials: "same-origin", ...options });
  } catch {
    throw new Problem(0, { detail: "The server does not answer", help: "Jobs run on. Start it again with `antiphon up`; the page comes back by itself." });
  }
}

export async function get(path) {
  const response = await checked(await reach(path, { headers: headers() }));
  return response.json();
}

/** A path's text and headers, for output. */
export async function raw(path) {
  const response = await checked(await reach(path, { headers: headers() }));
  return { bytes: new Uint8Array(await response.arrayBuffer()), headers: response.headers };
}

/** Sends a command once, however often it has to be repeated. */
export async function post(path, body) {
  const key = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  const response = await checked(await reach(path, {
    method: "POST",
    headers: headers({ "Content-Type": "application/json", "Idempotency-Key": key }),
    body: JSON.stringify(body || {}),
  }));
  return response.json();
}

/**
 * Logs the browser in: new tabs have its cookie. This tab keeps the token besides, since a server that is started again
 * knows no cookies of before, and a page is to find its way back by itself.
 */
export async function login(text) {
  const response = await reach("/v1/login", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ token: text.trim() }) });
  if (!response.ok) throw new Problem(response.status, await response.json().catch(() => ({})));
  setToken(text);
}

const SILENT_MS = 15000;
const WAITS_MS = [1000, 1000, 2000, 4000, 8000, 10000];

/**
 * Follows a page. `change(rows, changed)` is called with all rows, a Map in the order of keys, and the keys that changed;
 * `failed(problem)` where the server refuses. Returns what ends it.
 */
export function live(query, change, failed) {
  const parameters = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "" && value !== false && value !== undefined && value !== null));
  let rows = new Map();
  let id = "";
  let ended = false;
  let control = null;
  let timer = 0;

  function take(text) {
    const began = performance.now();
    const delta = JSON.parse(text);
    if (delta.all) rows = new Map();
    const changed = new Set(delta.gone);
    for (const key of delta.gone) rows.delete(key);
    for (const [key, value] of Object.entries(delta.rows)) {
      rows.set(key, value);
      changed.add(key);
    }
    if (changed.has("simulation")) {
      setSimulation(rows.get("simulation") || null);
      listeners.simulation();
    }
    change(rows, delta.all ? null : changed);
    // How long the newest change took to be read, drawn and painted, for whoever measures.
    requestAnimationFrame(() => setTimeout(() => {
      performance.clearMeasures("antiphon-change");
      performance.measure("antiphon-change", { start: began });
    }, 0));
  }

  async function once() {
    control = new AbortController();
    const response = await fetch(`/v1/live?${parameters}`, {
      headers: headers({ Accept: "text/event-stream", ...(id ? { "Last-Event-ID": id } : {}) }),
      cache: "no-store", credentials: "same-origin", signal: control.signal,
    });
    await checked(response);
    listeners.link("live");
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    // Pieces of an event whose end has not come: a large page comes in hundreds, and is put together once.
    let rest = [];
    let newest = "";
    for (;;) {
      clearTimeout(timer);
      timer = setTimeout(() => control.abort(), SILENT_MS);
      const { value, done } = await reader.read();
      if (done) return;
      const ends = value.includes("\n\n") || (newest.endsWith("\n") && value.startsWith("\n"));
      rest.push(value);
      newest = value;
      if (!ends) continue;
      const events = rest.join("").split("\n\n");
      newest = events.pop();
      rest = [newest];
      for (const event of events) {
        let data = "";
        for (const line of event.split("\n")) {
          if (line.startsWith("id:")) id = line.slice(3).trim();
          else if (line.startsWith("data:")) data += line.slice(5).replace(/^ /, "");
        }
        if (data) take(data);
      }
    }
  }

  (async () => {
    for (let tries = 0; !ended; tries += 1) {
      const began = Date.now();
      try {
        await once();
      } catch (error) {
        if (ended) return;
        if (error instanceof Problem && error.status && error.status < 500) {
          failed(error);
          return;
        }
      }
      clearTimeout(timer);
      if (ended) return;
      if (Date.now() - began > 10000) tries = 0;
      listeners.link("lost");
      await new Promise((resolve) => { setTimeout(resolve, WAITS_MS[Math.min(tries, WAITS_MS.length - 1)]); });
    }
  })();

  return () => {
    ended = true;
    clearTimeout(timer);
    if (control) control.abort();
  };
}

/** Rows of a kind, in the order of their keys. */
export function kind(rows, prefix) {
  const found = [];
  for (const [key, value] of rows) if (key.startsWith(prefix)) found.push([key.slice(prefix.length), value]);
  return found.sort((a, b) => (a[0] < b[0] ? -1 : 1));
}
