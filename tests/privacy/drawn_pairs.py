"""Random measurements of few attributes, by the products of their columns."""

import itertools
import math

import numpy as np
from hypothesis import strategies as st

from querysmasher.privacy.pairs import Products

entries = st.integers(-3, 3)


@st.composite
def products(draw, cells, even):
    rows = draw(st.lists(st.lists(entries, min_size=cells, max_size=cells), min_size=1, max_size=3))
    matrix = np.array(rows, dtype=float) - np.mean(rows, axis=1, keepdims=True)
    if even:  # all columns have length one
        matrix = np.concatenate([matrix, np.eye(cells)])
        matrix /= np.linalg.norm(matrix, axis=0)
    return Products.of(matrix)


@st.composite
def measurements(draw, even, joint):
    """Sizes, what is measured on some attribute sets, and weights."""
    sizes = draw(st.lists(st.integers(2, 3), min_size=1, max_size=4))
    main = [draw(products(n, even)) for n in sizes]
    sets = [s for k in range(1, len(sizes) + 1) for s in itertools.combinations(range(len(sizes)), k)]
    measured = []
    for chosen in draw(st.lists(st.sampled_from(sets), min_size=1, max_size=6, unique=True)):
        if joint and len(chosen) > 1 and draw(st.booleans()):
            measured.append(((chosen, draw(products(math.prod(sizes[a] for a in chosen), even))),))
        else:
            of = [
                draw(products(sizes[a], even)) if joint and draw(st.booleans()) else main[a] for a in chosen
            ]
            measured.append(tuple(((a,), strategy) for a, strategy in zip(chosen, of, strict=True)))
    weights = draw(st.lists(st.floats(0.01, 10), min_size=len(measured), max_size=len(measured)))
    return sizes, measured, np.array(weights)
