"""The error of Weighted Fourier Factorizations, from the paper's description: all it takes is energies.

Every Fourier coefficient is measured with its own noise. With E the energy that the queries have at a
coefficient, Σ weight·|c|², the best noise reaches the loss (Σ √E)². Recomputing the paper's WFF column
shows that a workload here is the paper's workload, whatever the planner makes of it.
"""

import math
from collections import defaultdict
from itertools import combinations, product

import numpy as np

ROWS = 500
"""Rows transformed at a time."""


def weighted_rmse(workload):
    """The root of (sum of weight × variance / number of queries) at privacy cost 1."""
    energies, numbers, kept_energies = {}, {}, {}

    def options(family):
        """All (kept axes, number of the energies on them, or their scalar) of a family."""
        if family.key not in energies:
            energies[family.key] = own = []
            spectrum = _spectrum(family)
            axes = range(len(family.shape))
            for kept in (c for k in range(len(family.shape) + 1) for c in combinations(axes, k)):
                part = spectrum[tuple(slice(1, None) if a in kept else 0 for a in axes)]
                number = numbers.setdefault((family.key, kept), len(numbers))
                kept_energies[number] = part
                own.append((kept, number, float(part) if not kept else 1.0))
        return energies[family.key]

    table = defaultdict(lambda: defaultdict(float))
    for group in workload:
        choices = []
        for names, family in group.parts():
            places = workload.schema.positions(names)
            choices.append([(tuple(places[a] for a in kept), n, c) for kept, n, c in options(family)])
        for chosen in product(*choices):
            places = tuple(p for kept, _, _ in chosen for p in kept)
            assert list(places) == sorted(places), "groups here name attributes in schema order"
            term = tuple(number for kept, number, _ in chosen if kept)
            table[places][term] += group.weight * math.prod(c for _, _, c in chosen)
    totals = {}

    def root_total(terms):
        """Σ √E over the coefficients of one attribute set; alike sets are worked out once."""
        alike = tuple(sorted((term, float(f"{c:.12e}")) for term, c in terms.items()))
        if alike not in totals:
            total = 0.0
            for term, coefficient in terms.items():
                energy = np.full((), coefficient)
                for number in term:
                    energy = np.multiply.outer(energy, kept_energies[number])
                total = total + energy
            totals[alike] = float(np.sqrt(total).sum())
        return totals[alike]

    return math.fsum(root_total(terms) for terms in table.values()) / math.sqrt(workload.query_count)


def _spectrum(family):
    """Σ over the family's queries of |Fourier coefficient|²."""
    matrix = family.matrix()
    total = np.zeros(family.shape)
    for start in range(0, len(matrix), ROWS):
        rows = matrix[start : start + ROWS].reshape(-1, *family.shape)
        image = np.fft.fftn(rows, axes=range(1, rows.ndim)) / family.cells
        total += (np.abs(image) ** 2).sum(axis=0)
    return total
