// Makes elements. Whatever somebody typed or a trainer sent becomes text or an attribute's value, never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props || {})) {
    if (name.startsWith("aria-") && typeof value === "boolean") node.setAttribute(name, String(value));
    else if (value === null || value === undefined || value === false) continue;
    else if (name === "on") for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else if (name === "style") for (const [key, text] of Object.entries(value)) node.style.setProperty(key, text);
    else if (name === "value") node.value = value;
    else if (name === "checked" || name === "disabled" || name === "hidden") node[name] = Boolean(value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  append(node, children);
  return node;
}

function append(node, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(node, child);
    else if (child instanceof Node) node.append(child);
    else if (child !== null && child !== undefined && child !== false) node.append(String(child));
  }
}

/** An HTML element. */
export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);

/** An SVG element. */
export const s = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

/** A sentence of the server's, whose `names` stand in a type of their own. */
export const ticked = (text) => text.split("`").map((part, index) => (index % 2 ? h("code", null, part) : part));

/** Puts children in place of what a node has; keeps the scroll position of what scrolls. */
export function put(node, ...children) {
  const top = node.scrollTop;
  node.replaceChildren();
  append(node, children);
  node.scrollTop = top;
}

/** A token of the style sheet, for canvases. */
export const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A panel with a title. */
export const panel = (title, aside, ...body) =>
  h("section", { class: "panel" }, h("header", null, h("h2", null, title), h("div", { class: "aside" }, aside)), ...body);

export const empty = (title, text) => h("div", { class: "empty" }, h("b", null, title), text);

export const problem = (error) =>
  h("div", { class: "problem", role: "alert" },
    h("b", null, ticked(error.detail || "The page could not be loaded")),
    h("p", null, ticked(error.help || error.message || ""), error.code ? h("span", { class: "muted" }, ` ${error.code}`) : null));

export const skeleton = () => h("div", { class: "stack", "aria-busy": "true" }, h("span", { class: "sr" }, "Loading"), h("div", { class: "skeleton" }), h("div", { class: "skeleton" }));

/** Shows a hint beside the pointer or an element; nothing hides it. */
export function tip(text, x, y) {
  const node = document.getElementById("tip");
  node.hidden = !text;
  if (!text) return;
  node.textContent = text;
  const left = Math.min(x + 14, window.innerWidth - node.offsetWidth - 8);
  const top = y + 18 + node.offsetHeight > window.innerHeight ? y - node.offsetHeight - 10 : y + 18;
  node.style.left = `${Math.max(8, left)}px`;
  node.style.top = `${Math.max(8, top)}px`;
}

/** Offers rows as a file. */
export function download(name, rows) {
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    // What begins like a formula is not to become one in a spreadsheet.
    const safe = /^[=+@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const text = rows.map((row) => row.map(cell).join(",")).join("\n");
  const url = URL.createObjectURL(new Blob([`${text}\n`], { type: "text/csv" }));
  const link = h("a", { href: url, download: `${name}.csv` });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** A link that offers a chart's data. */
export const csv = (name, rows) =>
  h("button", { class: "csv", type: "button", "aria-label": `${name} as CSV`, on: { click: () => download(name, rows()) } }, "CSV");
