// What paper shows: every table of the page, not only the chosen one, and which are too large to print.

const PRINTED = 600; // cells of one table
const ALL_PRINTED = 10000; // cells of all tables together

const size = (places) => places.reduce((product, place) => product * attribute(place).labels.length, 1);
const titled = (places) => places.map((place) => attribute(place).name).join(" × ");

function printedTables() {
  const all = [...data.tables, ...data.deep].map(([places]) => places)
    .sort((one, two) => one.length - two.length || size(one) - size(two));
  let cells = 0;
  const printed = all.filter((places) => {
    if (size(places) > PRINTED || cells + size(places) > ALL_PRINTED) return false;
    cells += size(places);
    return true;
  });
  return { printed, left: all.filter((places) => !printed.includes(places)) };
}

// One attribute: a row per value. Two: a cross-table, the shorter attribute across. Three: one for each value.
function printedTable(places) {
  const ordered = [...places].sort((one, two) => attribute(two).labels.length - attribute(one).labels.length);
  if (places.length === 1) return [make("table", {}, ...listed(places[0]))];
  if (places.length === 2) return [make("table", { class: "cross" }, ...crossed(ordered[0], ordered[1], null, "").parts)];
  const [third, a, b] = [ordered[2], ordered[0], ordered[1]];
  return attribute(third).labels.flatMap((label, v) => [make("h4", {}, `${attribute(third).name} = ${label}`),
    make("table", { class: "cross" }, ...crossed(a, b, [third, v], "").parts)]);
}

function listed(a) {
  const titles = [attribute(a).name, "Records", "Standard error", "95% interval"];
  return [make("thead", {}, make("tr", {}, ...titles.map((text, i) => make("th", { class: i > 0 ? "n" : null }, text)))),
    make("tbody", {}, ...cells(a, null, null).map((cell) => line([cell.a], cell)))];
}

function fillPaper() {
  const { printed, left } = printedTables();
  const short = left.slice(0, 20).map((places) => `${titled(places)} (${counted(size(places), "cell")})`).join("; ");
  const more = left.length > 20 ? ` and ${whole(left.length - 20)} more` : "";
  byId("paper").replaceChildren(
    make("p", {}, `Counts ± one standard error. ${counted(printed.length, "table")}, each with its totals where the release has them.`),
    ...printed.flatMap((places) => [make("h3", {}, titled(places)), ...printedTable(places)]),
    ...(left.length ? [make("p", { class: "note" }, `Too large to print: ${short}${more}. The file of answers has them.`)] : []));
}

// Paper shows all rows of the chosen table too.
window.addEventListener("beforeprint", () => {
  [state.shown, state.shownAnswers] = [Infinity, Infinity];
  if (data.tables.length) { tabulate(); fillPaper(); }
  if (data.answers.length) listAnswers();
});
