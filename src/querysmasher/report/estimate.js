// Estimates beside unbiased counts, with a switch between them. The page's own script comes later.

document.addEventListener("DOMContentLoaded", () => {
  const STEP = 60;
  let shown = STEP;
  const tenth = (value) => value.toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
  const names = (places) => places.map((place) => data.attributes[place].name).join(" × ");
  const table = () => data.estimates[Number(byId("estimate-table").value)];

  // The values of the attributes of a cell, the last running fastest.
  function labels(places, index) {
    const result = [];
    for (const place of [...places].reverse()) {
      const own = data.attributes[place].labels;
      result.unshift(own[index % own.length]);
      index = Math.floor(index / own.length);
    }
    return result;
  }

  function draw() {
    const [places, values, unbiased, std, marks] = table();
    const view = byId("estimate-view").value;
    const both = view !== "unbiased", plain = view !== "estimate";
    const cell = (text) => make("td", { class: "n" }, text);
    const head = [...places.map((place) => make("th", {}, data.attributes[place].name)),
      both ? make("th", { class: "n" }, "estimate") : null,
      plain ? make("th", { class: "n" }, "unbiased") : null, plain ? make("th", { class: "n" }, "95% interval") : null];
    const body = values.slice(0, shown).map((value, i) => make("tr", {},
      ...labels(places, i).map((label) => make("td", {}, label)),
      both ? cell(`${marks.includes(i) ? "† " : ""}${tenth(value)}`) : null,
      plain ? cell(unbiased === null ? "not measured" : estimate(unbiased[i], std[i])) : null,
      plain ? cell(unbiased === null ? "" : `${estimate(unbiased[i] - data.reach * std[i], std[i])} … ${estimate(unbiased[i] + data.reach * std[i], std[i])}`) : null));
    byId("estimate-cells").replaceChildren(make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body));
    byId("estimate-more").hidden = shown >= values.length;
    byId("estimate-note").textContent = (shown < values.length ? `${whole(shown)} of ${counted(values.length, "cell")}. ` : "") +
      (unbiased === null ? "This table was not measured." : `${whole(marks.length)} of ${counted(values.length, "estimate")} ` +
        `${marks.length === 1 ? "is" : "are"} marked; about ${Number((0.05 * std.filter((one) => one > 0).length).toFixed(1))} would be if all were exact.`);
  }

  if (!data.estimates || data.estimates.length === 0) return;
  byId("estimate-table").replaceChildren(...data.estimates.map(([places], i) => make("option", { value: i }, names(places))));
  const opened = [...data.opening].sort((one, two) => one - two).join(",");
  byId("estimate-table").value = Math.max(data.estimates.findIndex(([places]) => places.join(",") === opened), 0);
  byId("estimate-table").addEventListener("input", () => { shown = STEP; draw(); });
  byId("estimate-view").addEventListener("input", draw);
  byId("estimate-more").addEventListener("click", () => { shown += 10 * STEP; draw(); });
  window.addEventListener("beforeprint", () => { shown = Math.max(shown, PRINTED); draw(); });
  draw();
});
