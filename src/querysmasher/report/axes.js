// The axes of the charts of a release, the key of a heat map, and the legend.

// How many rows of a heat map have a label each: values without an order do not follow from their neighbours.
function rowsNamed(a) {
  return attribute(a).ordered ? 40 : 80;
}

// Titles of the axes, and labels at even steps.
function axes(spec, a, b, heat, band) {
  for (const { encoding } of spec.layer) {
    if (heat) {
      named(encoding.x, attribute(b), 12);
      named(encoding.y, attribute(a), rowsNamed(a), true);
    } else if (band) {
      named(encoding.x, attribute(a), 20);
    } else if (encoding.y) {
      encoding.y.title = attribute(a).name;
    }
  }
}

function named(channel, { name, labels }, most, upright = false) {
  if (!channel) return;
  channel.title = name;
  const steps = [1, 2, 5].flatMap((n) => [n, 10 * n, 100 * n, 1000 * n]).sort((one, two) => one - two);
  const step = steps.find((n) => labels.length / n <= most) ?? labels.length;
  const shown = Math.ceil(labels.length / step);
  const wide = 7 * Math.max(...labels.map((label) => label.length)) + 8;
  if (!upright && wide * shown > byId("chart").clientWidth - 60) {
    channel.axis = { ...channel.axis, labelAngle: -40, labelAlign: "right", labelOverlap: false, labelLimit: 180 };
  }
  if (step > 1) channel.axis = { ...channel.axis, values: labels.filter((_, i) => i % step === 0) };
}

// The key of a heat map: a few round counts up to the largest.
function key(spec, rows) {
  const most = Math.max(...rows.map((cell) => cell.value), 1);
  const round = (value) => Number(value.toPrecision(1));
  const steps = [...new Set([most / 100, most / 10, most / 3, most].map(round))].filter((value) => value > 0);
  for (const { encoding } of spec.layer) {
    if (encoding.opacity) encoding.opacity.legend.values = steps;
  }
}

function legend(attribute) {
  const labels = attribute === null ? [] : attribute.labels;
  byId("legend").replaceChildren(...(attribute === null ? [] : [make("b", {}, attribute.name)]), ...labels.map((label, j) =>
    make("span", {}, make("i", { style: `background: var(--series-${j + 1})` }), label)));
}
