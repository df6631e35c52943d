"""A release as the textbook has it: counts of all cells with normal errors of a known covariance."""

import numpy as np

import querysmasher as qs
from querysmasher.release.answers import Answers
from querysmasher.statistics.contrasts import Statistical
from tests.reference import query_rows


class Dense(Statistical):
    """Answers any workload from noisy cells, by their covariance written out."""

    def __init__(self, schema, cells, covariance):
        self.workload = qs.marginals(schema, 0)
        self.cells = np.asarray(cells, dtype=float).ravel()
        self.cell_covariance = np.asarray(covariance, dtype=float)

    def answer(self, workload):
        return Answers(
            workload,
            self.rows(workload) @ self.cells,
            np.sqrt(np.maximum(np.diagonal(self.covariance(workload)), 0)),
        )

    def covariance(self, workload, other=None):
        rows = self.rows(workload)
        return rows @ self.cell_covariance @ (rows if other is None else self.rows(other)).T

    @staticmethod
    def rows(workload):
        return query_rows(workload)[0]


def exact(schema, counts):
    """The table itself: what intervals must cover."""
    return Dense(schema, counts, np.zeros((counts.size, counts.size)))
