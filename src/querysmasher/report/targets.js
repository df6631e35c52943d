// Cost against targets: the counterpart of the slider for ε. Errors `factor` times as large meet ratio × factor targets.

const widths = () => data.curve.factors.map((factor) => data.targets.unit * data.targets.ratio * factor); // falling

// The ε at which the errors are `factor` times as large: the inverse of factorAt.
function epsilonAt(factor) {
  const { grid, factors, start } = data.curve;
  if (Math.abs(factor - 1) < 1e-9) return start;
  const high = factors.findIndex((smaller) => smaller < factor);
  if (high <= 0) return high === 0 ? grid[0] : grid[grid.length - 1];
  const along = Math.log(factor / factors[high - 1]) / Math.log(factors[high] / factors[high - 1]);
  return Math.exp((1 - along) * Math.log(grid[high - 1]) + along * Math.log(grid[high]));
}

function setTarget(width, mover) {
  if (!(width > 0)) return;
  setEpsilon(epsilonAt(width / (data.targets.unit * data.targets.ratio)), mover);
}

// The targets that the chosen ε meets, and what that costs.
function showTarget(epsilon, factor, mover) {
  const { unit, ratio, cost } = data.targets;
  const all = widths();
  const [most, least] = [all[0], all[all.length - 1]];
  const width = unit * ratio * factor;
  if (mover !== "target slider") byId("target-slider").value = 1000 * Math.log(width / least) / Math.log(most / least);
  if (mover !== "target") byId("target").value = Number(width.toPrecision(4));
  byId("cost").textContent = `ε = ${digits(epsilon)}, ρ = ${digits(cost / factor ** 2 / 2)}, μ = ${digits(Math.sqrt(cost) / factor)}`;
  setSignals("costs", { target: width, epsilon });
}

function controlTargets() {
  const all = widths();
  const [most, least] = [all[0], all[all.length - 1]];
  byId("target-slider").addEventListener("input", (event) => setTarget(least * (most / least) ** (event.target.value / 1000), "target slider"));
  byId("target").addEventListener("input", (event) => setTarget(Number(event.target.value), "target"));
  byId("asked-targets").addEventListener("click", () => setTarget(data.targets.unit));
}
