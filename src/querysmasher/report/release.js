// The page about a release: choose one attribute or two, see counts with their intervals.

const PAGE = 60;
const BARS = 80; // a chart of more bars is too long to take in: it shows the largest
const POINTS = 300; // a line of more values has no dots
const state = { text: "", shown: PAGE, answers: "", shownAnswers: PAGE };
const sorting = { cells: { sort: null, down: true }, queries: { sort: null, down: true } };
const pair = (a, b) => (b === null ? `${a}` : `${Math.min(a, b)},${Math.max(a, b)}`);
const tables = new Map([...data.tables, ...data.deep].map(([axes, values, std]) => // one error where all are the same
  [axes.join(","), { axes, values, std: Array.isArray(std) ? std : values.map(() => std) }]));
if (data.total) tables.set("", { axes: [], values: [data.total[0]], std: [data.total[1]] });
const attribute = (axis) => data.attributes[axis];

function option(value, text) { return make("option", { value }, text); }

// The count with the given values: pairs of an attribute and the index of its value. Null if there is no table.
function lookup(...fixed) {
  const ordered = fixed.filter(Boolean).sort(([one], [two]) => one - two);
  const table = tables.get(ordered.map(([axis]) => axis).join(","));
  if (!table) return null;
  const at = ordered.reduce((sum, [axis, index]) => sum * attribute(axis).labels.length + index, 0);
  return { value: table.values[at], std: table.std[at] };
}

// The cells on attributes a and b (or a alone), the first running slowest, among the records of `within`.
function cells(a, b, within) {
  const result = [];
  attribute(a).labels.forEach((first, i) => {
    (b === null ? [""] : attribute(b).labels).forEach((second, j) => {
      const { value, std } = lookup([a, i], b === null ? null : [b, j], within);
      const [low, high] = [value - data.reach * std, value + data.reach * std];
      result.push({ a: first, b: second, j, value, std, low, high });
    });
  });
  return result;
}

// The attribute and the index of the value that the third selector names, or null.
function chosenWithin() {
  const value = byId("within").value;
  return value === "" ? null : value.split(",").map(Number);
}

function chosen() {
  const a = Number(byId("first").value);
  const b = byId("second").value === "" ? null : Number(byId("second").value);
  const view = byId("view").value;
  const within = chosenWithin();
  let rows = cells(a, b, within);
  if (b !== null && view.startsWith("only ")) {
    const j = Number(view.slice(5));
    rows = rows.filter((cell) => cell.j === j);
  }
  if (view === "sorted") rows.sort((one, two) => two.value - one.value);
  return { a, b, view, rows, within };
}

function offerSeconds() {
  const a = Number(byId("first").value);
  const kept = byId("second").value;
  const partners = data.attributes.map((_, p) => p).filter((p) => p !== a && tables.has(pair(a, p)));
  byId("second").replaceChildren(option("", "none"), ...partners.map((p) => option(p, attribute(p).name)));
  if (partners.includes(Number(kept)) && kept !== "") byId("second").value = kept;
  byId("second").parentElement.hidden = partners.length === 0;
}

function offerWithin() {
  const a = Number(byId("first").value);
  const b = byId("second").value === "" ? null : Number(byId("second").value);
  const kept = byId("within").value;
  const known = (c) => tables.has([a, c, ...(b === null ? [] : [b])].sort((one, two) => one - two).join(","));
  const thirds = b === null ? [] : data.attributes.map((_, p) => p).filter((c) => c !== a && c !== b && known(c));
  byId("within").replaceChildren(option("", "all records"), ...thirds.flatMap((c) =>
    attribute(c).labels.map((label, v) => option(`${c},${v}`, `${attribute(c).name} = ${label}`))));
  if ([...byId("within").options].some(({ value }) => value === kept)) byId("within").value = kept;
  byId("within").parentElement.hidden = thirds.length === 0;
}

function offerViews() {
  const b = byId("second").value;
  byId("view").parentElement.hidden = false;
  if (b === "") {
    const { ordered, labels } = attribute(Number(byId("first").value));
    byId("view").replaceChildren(option("one", "in the order of the schema"), option("sorted", "largest first"));
    byId("view").parentElement.hidden = ordered || labels.length < 3;
    return;
  }
  const { name, labels } = attribute(Number(b));
  const compare = labels.length <= data.series && attribute(Number(byId("first").value)).ordered;
  byId("view").replaceChildren(...(compare ? [option("compare", "lines with intervals")] : []),
    option("heat", "heat map"), ...labels.map((label, j) => option(`only ${j}`, `only ${name} = ${label}`)));
}

async function show() {
  const { a, b, view, rows, within } = chosen();
  const heat = view === "heat";
  const band = view === "compare" || (!heat && attribute(a).ordered && attribute(a).labels.length > 2);
  const name = heat ? "heat" : band ? "band" : "bars";
  const spec = structuredClone(data.charts[name]);
  const scale = document.documentElement.clientWidth < 560 ? 0.8 : 1;
  const drawn = name === "bars" ? largest(rows) : rows;
  const many = heat ? attribute(a).labels.length : drawn.length;
  if (many > POINTS && band) spec.layer.pop();
  spec.height = band ? 320 * scale : many * (heat ? Math.max(many <= rowsNamed(a) ? 16 : 4, Math.min(22, 760 / many)) : 21);
  spec.datasets = { cells: view === "compare" || heat ? drawn : drawn.map((cell) => ({ ...cell, b: "" })) };
  axes(spec, a, b, heat, band);
  if (heat) key(spec, rows);
  legend(view === "compare" ? attribute(b) : null);
  caption(a, b, view, rows, drawn.length, within);
  crossTable(a, b, within);
  tabulate();
  remember("tables", Object.fromEntries(CHOICES.map((id) => [id, byId(id).value])));
  await draw("chart", spec);
}

// The rows with the largest counts, in the order they come in.
function largest(rows) {
  if (rows.length <= BARS) return rows;
  const least = [...rows].sort((one, two) => two.value - one.value)[BARS - 1].value;
  return rows.filter((cell) => cell.value >= least).slice(0, BARS);
}

// Whether a cross-table has totals: of rows, of columns, and of all.
function hasTotals(a, b, within) {
  return [[[a, 0]], [[b, 0]], []].every((fixed) => lookup(...fixed, within) !== null);
}

// A cross-table with totals, as a head and a body; percentages have the errors of ratios.
function crossed(a, b, within, percent) {
  const rows = attribute(a).labels, columns = attribute(b).labels;
  const fixed = (i, j) => [i < rows.length ? [a, i] : null, j < columns.length ? [b, j] : null, within];
  const at = (i, j) => lookup(...fixed(i, j));
  const total = hasTotals(a, b, within);
  const across = [...columns, ...(total ? ["Total"] : [])], down = [...rows, ...(total ? ["Total"] : [])];
  let unreliable = false, unknown = false;
  const shown = (i, j) => {
    const { value, std } = at(i, j);
    if (percent === "") return rounded(value, std);
    const below = percent === "row" ? [i, columns.length] : percent === "column" ? [rows.length, j] : [rows.length, columns.length];
    const under = at(...below);
    if (Math.abs(under.value) <= 2 * under.std || under.value === 0) { unreliable = true; return ["unreliable", ""]; }
    const error = percentageError(fixed(i, j), fixed(...below));
    if (error === null) unknown = true;
    const percentage = 100 * value / under.value;
    return error > 0 ? rounded(percentage, error, "%") : [`${percentage.toFixed(1)}%`, ""];
  };
  const head = make("thead", {}, make("tr", {}, make("th", {}, `${attribute(a).name} \\ ${attribute(b).name}`),
    ...across.map((label) => make("th", { class: "n" }, label))));
  const body = make("tbody", {}, ...down.map((label, i) => make("tr", { class: i === rows.length ? "sum" : null }, make("th", { scope: "row" }, label),
    ...across.map((_, j) => { const [value, error] = shown(i, j);
      return make("td", { class: j === columns.length ? "n sum" : "n" }, value, make("small", {}, error)); }))));
  return { parts: [head, body], unreliable, unknown };
}

// A figure and its error, which has two digits, or all that are not decimals.
function rounded(value, std, unit = "") {
  const show = (number) => estimate(number, std / 10);
  return [`${std === 0 ? estimate(value, 0) : show(value)}${unit}`, std === 0 ? "" : ` ± ${show(std)}`];
}

// Why there are no percentages of a table, or nothing if there are.
function percentsOff(a, b, within) {
  const long = [a, b].filter((axis) => axis !== null && attribute(axis).labels.length > data.cross);
  if (long.length) {
    return `Cross-tables and percentages are for up to ${data.cross} values: ` +
      `${long.map((axis) => `${attribute(axis).name} has ${whole(attribute(axis).labels.length)}`).join(", ")}.`;
  }
  if (b === null && byId("second").options.length > 1) return "Percentages need two attributes: choose the second under “by”.";
  if (b === null) return `Percentages need two attributes: this page has no table of ${attribute(a).name} by another.`;
  return hasTotals(a, b, within) ? "" : "Percentages need the totals, which this release does not have.";
}

function crossTable(a, b, within) {
  const off = percentsOff(a, b, within);
  byId("percent-off").textContent = off;
  byId("percent").disabled = off !== "";
  if (off) byId("percent").value = "";
  byId("crossing").hidden = b === null || attribute(a).labels.length > data.cross || attribute(b).labels.length > data.cross;
  if (byId("crossing").hidden) return;
  const percent = byId("percent").value;
  const { parts, unreliable, unknown } = crossed(a, b, within, percent);
  byId("cross").replaceChildren(...parts);
  byId("cross-note").textContent = percent === "" ? "Counts ± one standard error."
    : (unknown ? "Percentages. Their standard errors are not on this page." : "Percentages ± one standard error.") +
      (unreliable ? " Unreliable: the total is within two standard errors of zero." : "");
}

// The standard error of a percentage, from those of the count, of its total and of their difference; null if not known.
function percentageError(above, below) {
  const names = (fixed) => fixed.filter(Boolean).map(([axis]) => axis).sort((one, two) => one - two);
  const [cell, under] = [names(above), names(below)];
  if (cell.length === under.length) return 0; // the total itself
  const known = data.apart[`${cell.join(",")}|${under.join(",")}`];
  if (known === undefined) return null;
  const { value: N, std: n } = lookup(...above), { value: D, std: d } = lookup(...below);
  const at = above.filter(Boolean).sort(([one], [two]) => one - two)
    .reduce((sum, [axis, index]) => sum * attribute(axis).labels.length + index, 0);
  const apart = Array.isArray(known) ? known[at] : known;
  const R = N / D;
  return 100 / Math.abs(D) * Math.sqrt(Math.max((1 - R) * (n * n - R * d * d) + R * apart * apart, 0));
}

const CHOICES = ["first", "second", "within", "view", "percent"];

function recall() {
  const wanted = recalled("tables");
  if (!wanted) return;
  const take = (id) => {
    if ([...byId(id).options].some(({ value }) => value === wanted.get(id))) byId(id).value = wanted.get(id);
  };
  take("first"); offerSeconds(); take("second"); offerWithin(); take("within"); offerViews(); take("view"); take("percent");
}

// What is chosen, in words; also the name of its files.
function chosenWords() {
  const { a, b, view, within } = chosen();
  const value = (axis, index) => `${attribute(axis).name} = ${attribute(axis).labels[index]}`;
  return attribute(a).name + (b === null ? "" : ` by ${attribute(b).name}`) +
    (view.startsWith("only ") ? `, only ${value(b, Number(view.slice(5)))}` : "") + (within === null ? "" : `, within ${value(...within)}`);
}

// A number of a file, to a hundredth of its error.
function readable(value, std) {
  return Number(value.toFixed(std > 0 ? Math.min(Math.max(2 - Math.floor(Math.log10(std)), 0), 9) : 6));
}

function tableAsCsv() {
  const { a, b, rows, within } = chosen();
  const third = within === null ? [] : [attribute(within[0]).name];
  const head = [attribute(a).name, ...(b === null ? [] : [attribute(b).name]), ...third];
  const lines = rows.map((cell) => [cell.a, ...(b === null ? [] : [cell.b]), ...(within === null ? [] : [attribute(within[0]).labels[within[1]]]),
    ...[cell.value, cell.std, cell.low, cell.high].map((value) => readable(value, cell.std)),
    cell.value === 0 ? "" : Number(Math.abs(cell.std / cell.value).toPrecision(4))]);
  return csv([[...head, "value", "std", "low", "high", "cv"], ...lines]);
}

function caption(a, b, view, rows, drawn, within) {
  const first = attribute(a).name;
  const third = within === null ? "" : `, within ${attribute(within[0]).name} = ${attribute(within[0]).labels[within[1]]}`;
  const only = (view.startsWith("only ") ? `, only ${attribute(b).name} = ${rows[0]?.b}` : "") + third;
  const heat = `Records by ${first} (down) and ${b === null ? "" : attribute(b).name} (across)${third}. Stronger colour means more records (on a root scale); ` +
    "a dot marks counts whose interval contains zero.";
  const text = view === "heat" ? heat
    : `Records by ${first}${view === "compare" ? ` and ${attribute(b).name}` : ""}${only}, with 95% intervals.` +
      (drawn < rows.length ? ` The chart shows the ${drawn} largest of ${whole(rows.length)}.` : "");
  byId("caption").textContent = text;
}

const matches = (text, labels) => text.toLowerCase().split(/\s+/).filter(Boolean)
  .every((word) => labels.some((label) => label.toLowerCase().includes(word)));

function line(labels, { value, std }) {
  const [low, high] = [value - data.reach * std, value + data.reach * std];
  return make("tr", {}, ...labels.map((label) => make("td", {}, label)),
    make("td", { class: "n strong" }, estimate(value, std)),
    make("td", { class: "n" }, std === 0 ? "public" : digits(std)),
    make("td", { class: "n" }, std === 0 ? "" : `${estimate(low, std)} to ${estimate(high, std)}`));
}

function fill(id, head, rows, counter, more, shown, redraw) {
  const order = sorting[id];
  const titles = [...head.map((text) => [text, false]), ["Records", true], ["Standard error", true], ["95% interval", true]];
  const by = [...head.map((_, i) => ([labels]) => labels[i]), ([, cell]) => cell.value, ([, cell]) => cell.std, ([, cell]) => cell.value];
  const ordered = sorted(rows, by[order.sort], order.down);
  byId(id).replaceChildren(
    heading(titles, order, redraw),
    make("tbody", {}, ...ordered.slice(0, shown).map(([labels, cell]) => line(labels, cell))));
  byId(counter).textContent = rows.length > shown ? `${whole(shown)} of ${whole(rows.length)} rows` : counted(rows.length, "row");
  byId(more).hidden = rows.length <= shown;
}

function tabulate() {
  const { a, b, rows } = chosen();
  const head = b === null ? [attribute(a).name] : [attribute(a).name, attribute(b).name];
  const labelled = rows.map((cell) => [b === null ? [cell.a] : [cell.a, cell.b], cell])
    .filter(([labels]) => matches(state.text, labels));
  fill("cells", head, labelled, "found", "more", state.shown, tabulate);
}

function listAnswers() {
  const rows = data.answers.map(([label, value, std]) => [[label], { value, std }])
    .filter(([labels]) => matches(state.answers, labels));
  fill("queries", ["Query"], rows, "answers-found", "more-answers", state.shownAnswers, listAnswers);
}

function control() {
  const firsts = data.attributes.map((_, p) => p).filter((p) => data.tables.some(([axes]) => axes.includes(p)));
  const alone = firsts.filter((p) => tables.has(`${p}`));
  byId("first").append(...alone.map((p) => option(p, attribute(p).name)));
  byId("first").addEventListener("change", () => { offerSeconds(); offerWithin(); offerViews(); state.shown = PAGE; show(); });
  byId("second").addEventListener("change", () => { offerWithin(); offerViews(); state.shown = PAGE; show(); });
  byId("within").addEventListener("change", () => { state.shown = PAGE; show(); });
  byId("percent").addEventListener("change", () => show());
  const files = { csv: () => new Blob([tableAsCsv()], { type: "text/csv" }), svg: () => picture("chart"), png: async () => painted(await picture("chart")) };
  for (const [ending, content] of Object.entries(files)) {
    byId(`save-${ending}`).addEventListener("click", async () => {
      const name = `${fileName(chosenWords())}.${ending}`; // before a chart takes its time
      save(await content(), name);
    });
  }
  byId("view").addEventListener("change", () => { state.shown = PAGE; show(); });
  byId("filter").addEventListener("input", (event) => { state.text = event.target.value; state.shown = PAGE; tabulate(); });
  byId("more").addEventListener("click", () => { state.shown += 4 * PAGE; tabulate(); });
  controlPrinting();
  const [a, b] = data.opening;
  byId("first").value = a;
  offerSeconds();
  byId("second").value = b ?? "";
  offerWithin();
  offerViews();
  recall();
}

ready(async () => {
  if (data.answers.length) {
    byId("answer-filter").addEventListener("input", (event) => { state.answers = event.target.value; listAnswers(); });
    byId("more-answers").addEventListener("click", () => { state.shownAnswers += 4 * PAGE; listAnswers(); });
    listAnswers();
  }
  if (data.tables.length) { control(); await show(); }
});
