// The page about a plan: ε moves every error.

const PAGE = 50;
const state = { factor: 1, cv: 0.1, text: "", ways: "", shown: PAGE, sort: 2, down: true }; // the worst error first
const SORTED_BY = [(row) => row[0], (row) => row[2], (row) => row[3] ?? -1, (row) => (row[4] ? row[4][4] : -1), (row) => row[3] ?? -1];

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
  const share = Math.log(epsilon / grid[low]) / Math.log(grid[high] / grid[low]);
  return Math.exp((1 - share) * Math.log(factors[low]) + share * Math.log(factors[high]));
}

function found() {
  const words = state.text.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = data.groups.filter(([label, ways]) =>
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

function tabulate() {
  const rows = found();
  const shown = rows.slice(0, state.shown);
  const known = data.groups.map((row) => row[4]).filter(Boolean);
  const spreads = known.length > 0;
  const least = Math.min(...known.map((spread) => spread[0]));
  const most = Math.max(...known.map((spread) => spread[4]), least * 1.2);
  const reach = `Spread over queries: ${digits(least * state.factor)} to ${digits(most * state.factor)}`;
  const smallest = `Smallest count with CV ≤ ${digits(100 * state.cv).replace(/\.0+$/, "")}%`;
  const head = ["Group", "Queries", "Expected error", spreads ? reach : null, smallest];
  const body = shown.map(([label, , queries, rmse, spread]) => make("tr", {},
    make("td", {}, make("span", { class: "query" }, label)),
    make("td", { class: "n" }, whole(queries)),
    make("td", { class: "n" }, rmse === null ? "not computed" : `± ${digits(rmse * state.factor)}`),
    spreads ? make("td", {}, spread ? strip(spread, least, most) : "") : null,
    make("td", { class: "n" }, rmse === null ? "" : digits(rmse * state.factor / state.cv))));
  byId("groups").replaceChildren(
    heading(head.map((text) => text && [text, text !== "Group" && text !== reach]), state, tabulate),
    make("tbody", {}, ...body));
  byId("found").textContent = rows.length > shown.length
    ? `${whole(shown.length)} of ${whole(rows.length)} groups` : counted(rows.length, "group");
  byId("more").hidden = rows.length <= shown.length;
}

function setEpsilon(epsilon, mover) {
  const { grid, start } = data.curve;
  if (!(epsilon > 0)) return;
  const held = Math.min(Math.max(epsilon, grid[0]), grid[grid.length - 1]);
  state.factor = Math.abs(held / start - 1) < 1e-9 ? 1 : factorAt(held);
  if (mover !== "slider") {
    byId("slider").value = 1000 * Math.log(held / grid[0]) / Math.log(grid[grid.length - 1] / grid[0]);
  }
  if (mover !== "number") byId("epsilon").value = Number(held.toPrecision(3));
  const change = Math.abs(state.factor - 1) < 5e-4 ? "as planned" : `errors × ${digits(state.factor)}`;
  byId("factor").textContent = `± ${digits(data.rmse * state.factor)} on average, ${change}`;
  setSignals("curve", { epsilon: held, error: data.rmse * state.factor });
  setSignals("spread", { factor: state.factor });
  tabulate();
}

function control() {
  const ways = [...new Set(data.groups.map((row) => row[1]))].sort((a, b) => a - b);
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
}

// Paper shows all groups.
window.addEventListener("beforeprint", () => { state.shown = Infinity; tabulate(); });

ready(async () => {
  control();
  tabulate();
  await Promise.all(Object.entries(data.charts).map(([id, spec]) => draw(id, spec)));
  if (data.curve) setEpsilon(data.curve.start);
});
