"""How far planning scales: targets on time, memory and error, as ratios within one run where possible."""

from benchmarks.accuracy import mixed_cell
from benchmarks.cells import Cell, run
from benchmarks.report import Table


def scale(quick):
    """Targets beyond the paper's tables."""
    table = Table(
        "Scale",
        "Each figure with its target. The unit of the first is the time of one `scipy.linalg.eigh` of a"
        " random symmetric 1521 × 1521 matrix in the same process.",
        ("figure", "ours", "target"),
        "every figure is within its target",
    )

    def figure(what, value, form, limit):
        table.add(what, form.format(value), f"<= {limit:g}")
        table.check(value <= limit, f"{what}: {value:.4g}, target {limit:g}")

    def memory(what, result, limit):
        figure(f"{what}: peak memory, GB", result.gigabytes, "{:.2f}", limit)

    def stated(what, value):
        table.add(what, value, "")

    large = run(mixed_cell(40, 40))
    stated("mixed, n = 40, d = 40: seconds", f"{large.seconds:.2f}")
    figure("mixed, n = 40, d = 40: time / time of eigh", large.seconds / large.eigh_seconds, "{:.1f}", 10)
    memory("mixed, n = 40, d = 40", large, 1)

    few, many = run(mixed_cell(10, 10)), run(mixed_cell(10, 50))
    views, name = many.views - few.views, f"mixed, n = 10, {few.views:,} to {many.views:,} views"
    figure(f"{name}: added µs per view", (many.seconds - few.seconds) / views * 1e6, "{:.0f}", 100)
    stated(f"{name}: of these, µs of processor", f"{(many.cpu_seconds - few.cpu_seconds) / views * 1e6:.0f}")

    hybrid = run(Cell("hybrid", ("adult", "<=3"), fourier=True))
    figure("hybrid <=3-way, Adult: seconds", hybrid.seconds, "{:.2f}", 3)
    if quick:
        return table

    deep = run(Cell("prefix", (100, 100, "<=3")))
    name = f"prefix <=3-way, n = 100, d = 100 ({deep.views:,} sets, {deep.queries:.1e} queries)"
    figure(f"{name}: seconds with building the workload", deep.build_seconds + deep.seconds, "{:.1f}", 60)
    memory(name, deep, 1)

    for kind in ("affine", "abs"):
        pairs = run(Cell("every_pair", ("adult", kind), fourier=True))
        stated(f"{kind} on all pairs, Adult: seconds", f"{pairs.seconds:.1f}")
        memory(f"{kind} on all pairs, Adult", pairs, 2)

    both = run(Cell("marginals_and_hybrid", ("adult",), tolerance=1e-3))
    name = "marginals 3-way + hybrid <=2-way, Adult"
    figure(f"{name}: seconds", both.seconds, "{:.1f}", 60)
    memory(name, both, 2)
    stated(f"{name}: RMSE", f"{both.rmse:.3f}")
    stated(f"{name}: certified gap", f"{both.gap:.2%}")

    for n in (10, 20, 30):
        dense, structured = (
            run(Cell("marginals_and_prefix", (n,), tolerance=1e-4, solver=solver))
            for solver in ("dense", "structured")
        )
        above = 100 * (structured.rmse / dense.rmse - 1)
        figure(f"marginals 3-way + prefix <=2-way, [{n}]^3: structured above dense, %", above, "{:.2f}", 2)
        stated(f"  its certified gap, % (dense {dense.gap:.0e})", f"{100 * structured.gap:.1f}")
    return table
