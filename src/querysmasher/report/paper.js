// What paper shows: the chosen table, or every table of the page that is not too large to print.

const PRINTED = 600; // cells of one table
let printing = "shown"; // or all
const ALL_PRINTED = 10000; // cells of all tables together
const PAPER = 640; // pixels across, less than the narrower of A4 and Letter has

const size = (axes) => axes.reduce((product, axis) => product * attribute(axis).labels.length, 1);
const titled = (axes) => axes.map((axis) => attribute(axis).name).join(" × ");

function printedTables() {
  const all = [...data.tables, ...data.deep].map(([axes]) => axes)
    .sort((one, two) => one.length - two.length || size(one) - size(two));
  let cells = 0;
  const printed = all.filter((axes) => {
    if (size(axes) > PRINTED || cells + size(axes) > ALL_PRINTED) return false;
    cells += size(axes);
    return true;
  });
  return { printed, left: all.filter((axes) => !printed.includes(axes)) };
}

// One attribute: a row per value. Two: a cross-table, the shorter attribute across. Three: one for each value.
function printedTable(axes) {
  const ordered = [...axes].sort((one, two) => attribute(two).labels.length - attribute(one).labels.length);
  if (axes.length === 1) return [make("table", {}, ...listed(axes[0]))];
  if (axes.length === 2) return narrow(...crossed(ordered[0], ordered[1], null, "").parts);
  const [third, a, b] = [ordered[2], ordered[0], ordered[1]];
  return attribute(third).labels.flatMap((label, v) => [make("h4", {}, `${attribute(third).name} = ${label}`),
    ...narrow(...crossed(a, b, [third, v], "").parts)]);
}

// A cross-table as tables below each other, each with the first column and as many others as paper is wide.
function narrow(head, body) {
  const rows = [...head.rows, ...body.rows].map((row) => [...row.cells]);
  const widths = rows[0].map((_, j) => 14 + 6.2 * Math.max(...rows.map((row) => row[j].textContent.length)));
  const chunks = [];
  let room = 0;
  widths.forEach((width, j) => {
    if (j === 0) return;
    room -= width;
    if (room < 0) { chunks.push([]); room = PAPER - widths[0] - width; }
    chunks[chunks.length - 1].push(j);
  });
  const part = (from, chosen) => make(from.tagName.toLowerCase(), {}, ...[...from.rows].map((row) =>
    make("tr", {}, ...[0, ...chosen].map((j) => row.cells[j].cloneNode(true)))));
  return chunks.map((chosen) => make("table", { class: "cross" }, part(head, chosen), part(body, chosen)));
}

function listed(a) {
  const titles = [attribute(a).name, "Records", "Standard error", "95% interval"];
  return [make("thead", {}, make("tr", {}, ...titles.map((text, i) => make("th", { class: i > 0 ? "n" : null }, text)))),
    make("tbody", {}, ...cells(a, null, null).map((cell) => line([cell.a], cell)))];
}

function fillPaper() {
  const { printed, left } = printedTables();
  if (printing === "shown") {
    const all = data.tables.length + data.deep.length;
    byId("paper").replaceChildren(make("p", { class: "note" }, all > 1 ? `The page has ${whole(all)} tables; its button “Print …” offers to print all.` : ""));
    return;
  }
  const short = left.slice(0, 20).map((axes) => `${titled(axes)} (${counted(size(axes), "cell")})`).join("; ");
  const more = left.length > 20 ? ` and ${whole(left.length - 20)} more` : "";
  byId("paper").replaceChildren(
    make("p", {}, `Counts ± one standard error. ${counted(printed.length, "table")}, each with its totals where the release has them.`),
    ...printed.flatMap((axes) => [make("h3", {}, titled(axes)), ...printedTable(axes)]),
    ...(left.length ? [make("p", { class: "note" }, `Too large to print: ${short}${more}. The page on a screen has them.`)] : []));
}

// The chosen cross-table, which may show percentages, as wide as paper is.
function fillChosen() {
  document.querySelectorAll("#crossing .printed").forEach((old) => old.remove());
  const { tHead, tBodies } = byId("cross");
  if (byId("crossing").hidden || !tHead) return;
  byId("cross").parentElement.after(make("div", { class: "printed" }, ...narrow(tHead, tBodies[0])));
}

// Asks what to print. Without asking, as by the browser's own menu, it is the chosen table.
function controlPrinting() {
  const { printed, left } = printedTables();
  byId("print").addEventListener("click", () => {
    byId("print-shown").checked = true;
    byId("print-shown-words").textContent = `The chosen table, ${chosenWords()},${data.estimates ? " the chosen estimates" : ""} and the guarantee`;
    byId("print-all-words").textContent = `Everything on this page, with ${counted(printed.length, "table")}` +
      (left.length ? `; ${whole(left.length)} larger ${left.length === 1 ? "one is" : "ones are"} too large to print` : "");
    byId("printing").showModal();
  });
  byId("print-not").addEventListener("click", () => byId("printing").close());
  byId("print-now").addEventListener("click", () => {
    printing = byId("print-all").checked ? "all" : "shown";
    byId("printing").close();
    window.print();
  });
}

// Paper shows more rows of the chosen table than a screen.
window.addEventListener("beforeprint", () => {
  [state.shown, state.shownAnswers] = [PRINTED, Infinity];
  if (data.tables.length) { document.body.dataset.print = printing; tabulate(); fillPaper(); fillChosen(); }
  if (data.answers.length) listAnswers();
});

window.addEventListener("afterprint", () => { printing = "shown"; });
