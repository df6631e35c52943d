"""Hypothesis strategies for workloads with targets."""

from dataclasses import replace

from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.workload.workload import Target


@st.composite
def aimed(draw, workloads, amounts=(1.0, 1.0, 2.0, 0.3, 7.0)):
    """A workload of which some groups have targets."""
    workload = draw(workloads)
    chosen = [draw(st.none() | st.sampled_from(amounts).map(Target)) for _ in workload]
    groups = (replace(g, target=t) for g, t in zip(workload, chosen, strict=True))
    return qs.Workload(workload.schema, tuple(groups))
