"""Semidefinite programs as they are written down, solved by Clarabel."""

import math

import clarabel
import numpy as np
import scipy.sparse


class Program:
    """Minimise c · x over the x that satisfy linear inequalities and make matrices positive semidefinite."""

    def __init__(self):
        self.size = 0
        self._inequalities, self._matrices = [], []

    def variables(self, *shape):
        """New unknowns: their places in x."""
        places = np.arange(self.size, self.size + math.prod(shape)).reshape(shape)
        self.size += places.size
        return places

    def symmetric(self, n):
        """A new symmetric matrix of unknowns: the places of its entries in x."""
        upper = np.triu_indices(n)
        places = np.empty((n, n), int)
        places[upper] = places.T[upper] = self.variables(len(upper[0]))
        return places

    def require(self, places, coefficients, constants=0.0):
        """Require Σ_j coefficients[i, j] · x[places[i, j]] + constants[i] >= 0 for each i."""
        places, coefficients = np.broadcast_arrays(np.atleast_2d(places), np.atleast_2d(coefficients))
        constants = np.broadcast_to(constants, len(places))
        self._inequalities.append((self._rows(places, coefficients), constants))

    def require_semidefinite(self, matrix, sides, corner):
        """Require [[x[matrix], sides], [sidesᵀ, x[corner]]] to be positive semidefinite."""
        n, m = sides.shape
        places = np.block([[matrix, np.full((n, m), -1)], [np.full((m, n), -1), corner]])
        constants = np.block([[np.zeros((n, n)), sides], [sides.T, np.zeros((m, m))]])
        columns, rows = np.tril_indices(n + m)  # of the upper triangle, one column after the other
        scale = np.where(rows == columns, 1.0, math.sqrt(2))
        places = places[rows, columns]
        coefficients = np.where(places < 0, 0.0, scale)
        entries = self._rows(np.maximum(places, 0)[:, None], coefficients[:, None])
        self._matrices.append((entries, scale * constants[rows, columns], n + m))

    def minimum(self, places, coefficients=1.0):
        """The least Σ coefficients · x[places]."""
        costs = np.zeros(self.size)
        np.add.at(costs, places, coefficients)
        lines = [*self._inequalities, *((rows, constants) for rows, constants, _ in self._matrices)]
        for rows, _ in lines:
            rows.resize(rows.shape[0], self.size)
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        solution = clarabel.DefaultSolver(
            scipy.sparse.csc_matrix((self.size, self.size)),
            costs,
            -scipy.sparse.vstack([rows for rows, _ in lines], format="csc"),
            np.concatenate([constants for _, constants in lines]),
            [clarabel.NonnegativeConeT(sum(len(constants) for _, constants in self._inequalities))]
            + [clarabel.PSDTriangleConeT(n) for *_, n in self._matrices],
            settings,
        ).solve()
        assert str(solution.status) in {"Solved", "AlmostSolved"}, solution.status
        return solution.obj_val

    def _rows(self, places, coefficients):
        """The coefficients of all unknowns so far in linear expressions of some of them."""
        numbers = np.repeat(np.arange(len(places)), places.shape[1])
        entries = (coefficients.ravel(), (numbers, places.ravel()))
        return scipy.sparse.csr_matrix(entries, (len(places), self.size))
