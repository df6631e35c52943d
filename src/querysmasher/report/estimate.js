// Estimates beside unbiased counts, with a switch between them. The page's own script comes later.

document.addEventListener("DOMContentLoaded", () => {
  const STEP = 60;
  let shown = STEP;
  const tenth = (value) => value.toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
  const names = (axes) => axes.map((axis) => data.attributes[axis].name).join(" × ");
  const table = () => data.estimates[Number(byId("estimate-table").value)];

  // The values of the attributes of a cell, the last running fastest.
  function labels(axes, index) {
    const result = [];
    for (const axis of [...axes].reverse()) {
      const values = data.attributes[axis].labels;
      result.unshift(values[index % values.length]);
      index = Math.floor(index / values.length);
    }
    return result;
  }

  function draw() {
    const [axes, values, unbiased, std, marks] = table();
    const view = byId("estimate-view").value;
    const both = view !== "unbiased", plain = view !== "estimate";
    const cell = (text) => make("td", { class: "n" }, text);
    const head = [...axes.map((axis) => make("th", {}, data.attributes[axis].name)),
      both ? make("th", { class: "n" }, "estimate") : null,
      plain ? make("th", { class: "n" }, "unbiased") : null, plain ? make("th", { class: "n" }, "95% interval") : null];
    const body = values.slice(0, shown).map((value, i) => make("tr", {},
      ...labels(axes, i).map((label) => make("td", {}, label)),
      both ? cell(`${marks.includes(i) ? "† " : ""}${tenth(value)}`) : null,
      plain ? cell(unbiased === null ? "not measured" : estimate(unbiased[i], std[i])) : null,
      plain ? cell(unbiased === null ? "" : `${estimate(unbiased[i] - data.reach * std[i], std[i])} … ${estimate(unbiased[i] + data.reach * std[i], std[i])}`) : null));
    byId("estimate-cells").replaceChildren(make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body));
    byId("estimate-more").hidden = shown >= values.length;
    byId("estimate-note").textContent = (shown < values.length ? `${whole(shown)} of ${counted(values.length, "cell")}. ` : "") +
      (unbiased === null ? "This table was not measured." : `${whole(marks.length)} of ${counted(values.length, "estimate")} ` +
        `${marks.length === 1 ? "is" : "are"} marked; about ${Number((0.05 * std.filter((error) => error > 0).length).toFixed(1))} would be if all were exact.`);
  }

  if (!data.estimates || data.estimates.length === 0) return;
  byId("estimate-table").replaceChildren(...data.estimates.map(([axes], i) => make("option", { value: i }, names(axes))));
  const opened = [...data.opening].sort((one, two) => one - two).join(",");
  byId("estimate-table").value = Math.max(data.estimates.findIndex(([axes]) => axes.join(",") === opened), 0);
  byId("estimate-table").addEventListener("input", () => { shown = STEP; draw(); });
  byId("estimate-view").addEventListener("input", draw);
  byId("estimate-more").addEventListener("click", () => { shown += 10 * STEP; draw(); });
  window.addEventListener("beforeprint", () => { shown = Math.max(shown, PRINTED); draw(); });
  draw();
});
