"use strict";
// What the pages share. Strings from the data reach the page as text nodes only.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const views = {};

function make(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function svg(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Three significant digits, separated thousands.
function digits(value) {
  if (!Number.isFinite(value)) return "—";
  if (value === 0) return "0";
  const rounded = Number(value.toPrecision(3));  // 9.999 is 10.0, not 10.00
  const size = Math.floor(Math.log10(Math.abs(rounded)));
  if (size > 14 || size < -7) return value.toExponential(2);
  const decimals = 2 - size;
  return rounded.toLocaleString("en", {
    minimumFractionDigits: Math.max(decimals, 0), maximumFractionDigits: Math.max(decimals, 0),
  });
}

const whole = (value) => value.toLocaleString("en", { maximumFractionDigits: 0 });

const counted = (value, noun) => `${whole(value)} ${noun}${value === 1 ? "" : "s"}`;

// A count with as many decimals as its error warrants, and a true minus sign.
function estimate(value, std) {
  const decimals = std > 0 ? Math.min(Math.max(0, -Math.floor(Math.log10(std))), 6) : 0;
  const shown = value.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  return shown.replace(/^-(?=[0,.]*$)/, "").replace("-", "−");
}

// Rows in the order of what `by` returns; null keeps the order.
function sorted(rows, by, down) {
  if (!by) return rows;
  const sign = down ? -1 : 1;
  return rows.map((row, i) => [by(row), i, row]).sort(([one, i], [two, j]) =>
    (typeof one === "string" ? sign * one.localeCompare(two, "en", { numeric: true }) : sign * (one - two)) || i - j).map(([, , row]) => row);
}

// The head of a table that sorts by the column clicked on; `titles` has [text, whether it is a number] or null.
function heading(titles, sorting, redraw) {
  const cell = (title, column) => {
    if (!title) return null;
    const chosen = sorting.sort === column;
    const button = make("button", { type: "button", class: "sort" }, title[0]);
    button.addEventListener("click", () => {
      [sorting.sort, sorting.down] = [column, chosen ? !sorting.down : title[1]];
      redraw();
    });
    return make("th", { class: title[1] ? "n" : null, "aria-sort": chosen ? (sorting.down ? "descending" : "ascending") : null }, button);
  };
  return make("thead", {}, make("tr", {}, ...titles.map(cell).filter(Boolean)));
}

async function draw(id, spec) {
  const target = byId(id);
  if (!target || !spec) return null;
  if (views[id]) views[id].finalize();
  const options = { actions: false, renderer: "svg", config: data.config, tooltip: { theme: "custom" } };
  views[id] = await vegaEmbed(target, spec, options);
  return views[id].view;
}

function setSignals(id, signals) {
  if (!views[id]) return;
  for (const [name, value] of Object.entries(signals)) views[id].view.signal(name, value);
  views[id].view.runAsync();
}

// Charts keep the width they were drawn at; paper is narrower than most screens.
window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.open = true; }));

function ready(work) {
  work().then(() => { document.documentElement.dataset.ready = "yes"; });
}
