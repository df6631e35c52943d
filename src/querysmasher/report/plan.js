// The page about a plan: ε moves every error below the key figures.

const PAGE = 50;
const MET = 1 + 1e-6; // an error may exceed its target by rounding
const has = (name) => data.groups.some((row) => row[name] !== undefined && row[name] !== null);
const COLUMNS = ["group", "queries", "error", "largest", "target", "spread", "smallest"];
const SORTED_BY = [(row) => row.label, (row) => row.queries, (row) => row.rmse ?? -1, (row) => row.largest ?? -1,
  (row) => row.ratio ?? -1, (row) => (row.spread ? row.spread[4] : -1), (row) => row.rmse ?? -1];
const WORST = has("largest") ? 3 : 2; // the worst error first
const state = { factor: 1, cv: 0.1, text: "", ways: "", shown: PAGE, sort: WORST, down: true };

// Between the points of the table, log error is nearly straight in log ε.
function factorAt(epsilon) {
  const { grid, factors } = data.curve;
  if (epsilon <= grid[0]) return factors[0];
  if (epsilon >= grid[grid.length - 1]) return factors[factors.length - 1];
  let low = 0, high = grid.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (grid[middle] <= epsilon) low = middle; else high = middle;
  }
  const along = Math.log(epsilon / grid[low]) / Math.log(grid[high] / grid[low]);
  return Math.exp((1 - along) * Math.log(factors[low]) + along * Math.log(factors[high]));
}

function matching() {
  const words = state.text.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = data.groups.filter(({ label, ways }) =>
    (state.ways === "" || ways === Number(state.ways)) &&
    words.every((word) => label.toLowerCase().includes(word)));
  return sorted(rows, SORTED_BY[state.sort], state.down);
}

function strip(spread, least, most) {
  const at = (value) => 3 + 94 * (value - least) / (most - least);
  const [q0, q1, q2, q3, q4] = spread.map(at);
  const title = svg("title", {}, `5%: ${digits(spread[0] * state.factor)}, median: ` +
    `${digits(spread[2] * state.factor)}, 95%: ${digits(spread[4] * state.factor)}`);
  return svg("svg", { viewBox: "0 0 100 14", class: "strip", role: "img" }, title,
    svg("line", { x1: q0, x2: Math.max(q4, q0 + 0.5), y1: 7, y2: 7 }),
    svg("rect", { x: q1, width: Math.max(q3 - q1, 0.8), y: 3.5, height: 7, rx: 1 }),
    svg("line", { x1: q2, x2: q2, y1: 1.5, y2: 12.5, class: "median" }));
}

// A group and, if it has several queries, the one with the largest error.
function groupCell({ label, query, queries }) {
  const which = queries > 1 && query !== undefined ? make("small", {}, `largest: ${query}`) : null;
  return make("td", {}, make("span", { class: "query" }, label), which);
}

// Whether the target of a group is met.
function status({ ratio }) {
  const now = ratio * state.factor;
  return now <= MET ? `met, at ${(100 * Math.min(now, 1)).toFixed(1).replace(".0", "")}%` : `missed by × ${Number(Math.max(now, 1.001).toPrecision(4))}`;
}

function targetCell(row) {
  if (row.target === undefined) return make("td", { class: "n" }, "none");
  const missed = row.ratio * state.factor > MET;
  return make("td", { class: "n" }, row.target, make("small", { class: missed ? "missed" : null }, status(row)));
}

function tabulate() {
  const rows = matching();
  const shown = rows.slice(0, state.shown);
  const known = data.groups.map((row) => row.spread).filter(Boolean);
  const least = Math.min(...known.map((spread) => spread[0]));
  const most = Math.max(...known.map((spread) => spread[4]), least * 1.2);
  const reach = `Spread over queries: ${digits(least * state.factor)} to ${digits(most * state.factor)}`;
  const smallest = `Smallest count with CV ≤ ${digits(100 * state.cv).replace(/\.0+$/, "")}%`;
  const head = [["Group", false], ["Queries", true], ["Expected error", true], has("largest") ? ["Largest error", true] : null,
    has("target") ? ["Target", true] : null, has("spread") ? [reach, false] : null, [smallest, true]];
  const body = shown.map((row) => make("tr", {},
    groupCell(row),
    make("td", { class: "n" }, whole(row.queries)),
    make("td", { class: "n" }, row.rmse === null ? "not computed" : `± ${digits(row.rmse * state.factor)}`),
    head[3] && make("td", { class: "n" }, row.largest === undefined ? "not computed" : `± ${digits(row.largest * state.factor)}`),
    head[4] && targetCell(row),
    head[5] && make("td", { class: "spread" }, row.spread ? strip(row.spread, least, most) : ""),
    make("td", { class: "n" }, row.rmse === null ? "" : digits(row.rmse * state.factor / state.cv))));
  byId("groups").replaceChildren(heading(head, state, tabulate), make("tbody", {}, ...body));
  byId("found").textContent = rows.length > shown.length
    ? `${whole(shown.length)} of ${whole(rows.length)} groups` : counted(rows.length, "group");
  byId("more").hidden = rows.length <= shown.length;
  keep();
}

// The chosen groups as rows of a file, all of them, with errors at the chosen ε.
function groupsAsRows() {
  const times = (value) => (value === undefined || value === null ? null : Number((value * state.factor).toPrecision(5)));
  const [largest, target] = [has("largest"), has("target")];
  const head = ["group", "attributes", "queries", "expected_error", ...(largest ? ["largest_error", "largest_error_of"] : []),
    ...(target ? ["target", "target_status"] : []), `smallest_count_with_cv_${state.cv}`];
  return [head, ...matching().map((row) => [row.label, row.ways, row.queries, times(row.rmse),
    ...(largest ? [times(row.largest), row.query] : []),
    ...(target ? [row.target, row.target === undefined ? null : status(row)] : []),
    row.rmse === null ? null : times(row.rmse / state.cv)])];
}

// The address follows what is chosen, once a slider rests.
function keep() {
  if (document.documentElement.dataset.ready !== "yes") return;
  clearTimeout(state.keeping);
  state.keeping = setTimeout(() => {
    const epsilon = data.curve && state.factor !== 1 ? Number(state.epsilon.toPrecision(6)) : "";
    const order = state.sort === WORST && state.down ? "" : `${COLUMNS[state.sort]}${state.down ? "" : "-up"}`;
    remember("error", { filter: state.text, ways: state.ways, sort: order, cv: state.cv === 0.1 ? "" : state.cv, epsilon });
  }, 200);
}

// Opens what a link has chosen; what it does not name is as planned.
function recall() {
  const wanted = recalled("error");
  if (!wanted) return;
  const take = (id, value) => { byId(id).value = value; return byId(id).value; };
  state.text = take("filter", wanted.get("filter") ?? "");
  const offers = (id, value) => [...byId(id).options].some((option) => option.value === value);
  if (offers("ways", wanted.get("ways"))) state.ways = take("ways", wanted.get("ways"));
  if (offers("cv", wanted.get("cv"))) state.cv = Number(take("cv", wanted.get("cv")));
  const [column, up] = (wanted.get("sort") ?? "").split("-");
  if (COLUMNS.includes(column)) [state.sort, state.down] = [COLUMNS.indexOf(column), up !== "up"];
  if (data.curve) setEpsilon(Number(wanted.get("epsilon")) || data.curve.start);
  tabulate();
  byId("by-group").scrollIntoView();
}

function offerFiles() {
  for (const id of Object.keys(views)) offerChart(id);
  for (const table of document.querySelectorAll("section .scroll > table")) {
    offerTable(table, table.id === "groups" ? groupsAsRows : undefined);
  }
}

function setEpsilon(epsilon, mover) {
  const { grid, start } = data.curve;
  if (!(epsilon > 0)) return;
  const held = Math.min(Math.max(epsilon, grid[0]), grid[grid.length - 1]);
  state.factor = Math.abs(held / start - 1) < 1e-9 ? 1 : factorAt(held);
  state.epsilon = held;
  if (mover !== "slider") {
    byId("slider").value = 1000 * Math.log(held / grid[0]) / Math.log(grid[grid.length - 1] / grid[0]);
  }
  if (mover !== "number") byId("epsilon").value = Number(held.toPrecision(3));
  const change = Math.abs(state.factor - 1) < 5e-4 ? "as planned" : `errors × ${digits(state.factor)}`;
  byId("factor").textContent = `± ${digits(data.rmse * state.factor)} on average, ${change}`;
  setSignals("curve", { epsilon: held, error: data.rmse * state.factor });
  setSignals("spread", { factor: state.factor });
  if (data.targets) showTarget(held, state.factor, mover);
  tabulate();
}

function control() {
  const ways = [...new Set(data.groups.map((row) => row.ways))].sort((a, b) => a - b);
  byId("ways").append(make("option", { value: "" }, "any number of attributes"),
    ...ways.map((n) => make("option", { value: n }, n === 1 ? "1 attribute" : `${n} attributes`)));
  byId("ways").addEventListener("change", (event) => { state.ways = event.target.value; state.shown = PAGE; tabulate(); });
  byId("filter").addEventListener("input", (event) => { state.text = event.target.value; state.shown = PAGE; tabulate(); });
  byId("cv").addEventListener("change", (event) => { state.cv = Number(event.target.value); tabulate(); });
  byId("more").addEventListener("click", () => { state.shown += 4 * PAGE; tabulate(); });
  if (!data.curve) return;
  const { grid, start } = data.curve;
  const reach = Math.log(grid[grid.length - 1] / grid[0]);
  byId("slider").addEventListener("input", (event) => setEpsilon(grid[0] * Math.exp(reach * event.target.value / 1000), "slider"));
  byId("epsilon").addEventListener("input", (event) => setEpsilon(Number(event.target.value), "number"));
  byId("reset").addEventListener("click", () => setEpsilon(start));
  if (data.targets) controlTargets();
}

// Paper shows all groups.
window.addEventListener("beforeprint", () => { state.shown = Infinity; tabulate(); });

ready(async () => {
  control();
  tabulate();
  await Promise.all(Object.entries(data.charts).map(([id, spec]) => draw(id, spec)));
  if (data.curve) setEpsilon(data.curve.start);
  offerFiles();
  recall();
  window.addEventListener("hashchange", recall);
});
