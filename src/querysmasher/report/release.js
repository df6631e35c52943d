// The page about a release: choose one attribute or two, see counts with their intervals.

const PAGE = 60;
const BARS = 80; // a chart of more bars is too long to take in: it shows the largest
const POINTS = 300; // a line of more values has no dots
const state = { text: "", shown: PAGE, answers: "", shownAnswers: PAGE };
const key = (a, b) => (b === null ? `${a}` : `${Math.min(a, b)},${Math.max(a, b)}`);
const tables = new Map(data.tables.map(([places, values, std]) => // one error where all are the same
  [places.join(","), { places, values, std: Array.isArray(std) ? std : values.map(() => std) }]));
const attribute = (place) => data.attributes[place];

function option(value, text) { return make("option", { value }, text); }

// The cells on attributes a and b (or a alone), the first running slowest.
function cells(a, b) {
  const { places, values, std } = tables.get(key(a, b));
  const cell = (i, j, at) => ({
    a: attribute(a).labels[i], b: b === null ? "" : attribute(b).labels[j], j, value: values[at], std: std[at],
    low: values[at] - data.reach * std[at], high: values[at] + data.reach * std[at],
  });
  if (b === null) return values.map((_, i) => cell(i, 0, i));
  const rows = attribute(a).labels.length, columns = attribute(b).labels.length;
  const result = [];
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) result.push(cell(i, j, places[0] === a ? i * columns + j : j * rows + i));
  }
  return result;
}

function chosen() {
  const a = Number(byId("first").value);
  const b = byId("second").value === "" ? null : Number(byId("second").value);
  const view = byId("view").value;
  let rows = cells(a, b);
  if (b !== null && view.startsWith("only ")) {
    const j = Number(view.slice(5));
    rows = rows.filter((cell) => cell.j === j);
  }
  if (view === "sorted") rows.sort((one, two) => two.value - one.value);
  return { a, b, view, rows };
}

function offerSeconds() {
  const a = Number(byId("first").value);
  const kept = byId("second").value;
  const partners = data.attributes.map((_, p) => p).filter((p) => p !== a && tables.has(key(a, p)));
  byId("second").replaceChildren(option("", "none"), ...partners.map((p) => option(p, attribute(p).name)));
  if (partners.includes(Number(kept)) && kept !== "") byId("second").value = kept;
  byId("second").parentElement.hidden = partners.length === 0;
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
  const { a, b, view, rows } = chosen();
  const heat = view === "heat";
  const band = view === "compare" || (!heat && attribute(a).ordered && attribute(a).labels.length > 2);
  const name = heat ? "heat" : band ? "band" : "bars";
  const spec = structuredClone(data.charts[name]);
  const scale = document.documentElement.clientWidth < 560 ? 0.8 : 1;
  const drawn = name === "bars" ? largest(rows) : rows;
  const many = heat ? attribute(a).labels.length : drawn.length;
  if (many > POINTS && band) spec.layer.pop();
  spec.height = band ? 320 * scale : many * (heat ? Math.max(4, Math.min(22, 760 / many)) : 21);
  spec.datasets = { cells: view === "compare" || heat ? drawn : drawn.map((cell) => ({ ...cell, b: "" })) };
  legend(view === "compare" ? attribute(b).labels : []);
  caption(a, b, view, rows, drawn.length);
  tabulate();
  await draw("chart", spec);
}

// The rows with the largest counts, in the order they come in.
function largest(rows) {
  if (rows.length <= BARS) return rows;
  const least = [...rows].sort((one, two) => two.value - one.value)[BARS - 1].value;
  return rows.filter((cell) => cell.value >= least).slice(0, BARS);
}

function legend(labels) {
  byId("legend").replaceChildren(...labels.map((label, j) =>
    make("span", {}, make("i", { style: `background: var(--series-${j + 1})` }), label)));
}

function caption(a, b, view, rows, drawn) {
  const first = attribute(a).name;
  const only = view.startsWith("only ") ? `, only ${attribute(b).name} = ${rows[0]?.b}` : "";
  const heat = `Records by ${first} (down) and ${b === null ? "" : attribute(b).name} (across). Darker cells have more records; ` +
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

function fill(id, head, rows, counter, more, shown) {
  byId(id).replaceChildren(
    make("thead", {}, make("tr", {}, ...head.map((text) => make("th", {}, text)),
      ...["Records", "Standard error", "95% interval"].map((text) => make("th", { class: "n" }, text)))),
    make("tbody", {}, ...rows.slice(0, shown).map(([labels, cell]) => line(labels, cell))));
  byId(counter).textContent = rows.length > shown ? `${whole(shown)} of ${whole(rows.length)} rows` : counted(rows.length, "row");
  byId(more).hidden = rows.length <= shown;
}

function tabulate() {
  const { a, b, rows } = chosen();
  const head = b === null ? [attribute(a).name] : [attribute(a).name, attribute(b).name];
  const labelled = rows.map((cell) => [b === null ? [cell.a] : [cell.a, cell.b], cell])
    .filter(([labels]) => matches(state.text, labels));
  fill("cells", head, labelled, "found", "more", state.shown);
}

function listAnswers() {
  const rows = data.answers.map(([label, value, std]) => [[label], { value, std }])
    .filter(([labels]) => matches(state.answers, labels));
  fill("queries", ["Query"], rows, "answers-found", "more-answers", state.shownAnswers);
}

function control() {
  const firsts = data.attributes.map((_, p) => p).filter((p) => data.tables.some(([places]) => places.includes(p)));
  const alone = firsts.filter((p) => tables.has(`${p}`));
  byId("first").append(...alone.map((p) => option(p, attribute(p).name)));
  byId("first").addEventListener("change", () => { offerSeconds(); offerViews(); state.shown = PAGE; show(); });
  byId("second").addEventListener("change", () => { offerViews(); state.shown = PAGE; show(); });
  byId("view").addEventListener("change", () => { state.shown = PAGE; show(); });
  byId("filter").addEventListener("input", (event) => { state.text = event.target.value; state.shown = PAGE; tabulate(); });
  byId("more").addEventListener("click", () => { state.shown += 4 * PAGE; tabulate(); });
  offerSeconds();
  offerViews();
}

ready(async () => {
  if (data.answers.length) {
    byId("answer-filter").addEventListener("input", (event) => { state.answers = event.target.value; listAnswers(); });
    byId("more-answers").addEventListener("click", () => { state.shownAnswers += 4 * PAGE; listAnswers(); });
    listAnswers();
  }
  if (data.tables.length) { control(); await show(); }
});
