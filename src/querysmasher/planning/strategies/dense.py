"""Any rows over the cells of a block: inside a residual space, or whole queries over equal columns.

With E the cells' columns (cells × columns, 0/1), D the sizes of the columns and M the stored rows, B = M·Eᵀ.
U = E·D^(-½) has orthonormal columns, so B† = U·(M·D^½)†: a query enters by its sums over the cells of each
column, divided by the root of their number. All work is done over columns, and over coarse cells, which are
combinations of classes of values.

Along every attribute, rows in integers satisfy Σ_j k_j b_j = 0, with k the attribute's centre in integers.
They span what the planned rows span, or more: rounding costs a little optimality, but causes no bias.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial, reduce
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import (
    CHUNK,
    ROUNDING,
    STRAIGHT,
    Array,
    solve_cholesky,
    solve_upper,
    tame_root,
)
from querysmasher.errors import PlanError
from querysmasher.fields import floats, integers, items, wholes
from querysmasher.planning.centre import Centre, complement
from querysmasher.planning.lattice import LARGEST as LARGEST_INTEGER
from querysmasher.planning.lattice import Integers, project
from querysmasher.planning.limits import limits
from querysmasher.planning.strategies.strategy import (
    DEPENDENT,
    LARGEST,
    AxisRows,
    Strategy,
    is_inside,
    is_residual,
    squared_lengths,
)
from querysmasher.privacy.accounting import squared_sensitivity
from querysmasher.privacy.factors import WORD, Factor, Matrix, Merged, Partition
from querysmasher.privacy.integer_plan import IntegerStrategy
from querysmasher.privacy.pairs import MOST_CELLS, Products

FAINT = 2.0**-5
"""Weight of rows that are added only to keep rounding inside the measured space."""

LATTICE_BITS = 6
"""Extra bits for combinations of lattice rows, which are coarser than single units."""

SCALES = np.linspace(1.0, 0.52, 25).tolist()
"""Multiples of rows that are tried before they are rounded to few bits."""


def round_rows(rows: Array, centres: Sequence[Integers], bits: int, scale: float = 1.0) -> Integers:
    """Round rows over some axes to integers in the residual space around their centres.

    On several axes entries may take more than `bits` bits, up to a word. On one axis entries are rounded to
    the nearest integer, then as few single units as possible repair Σ_j centre[j]·b[j] = 0, each where it
    costs least. The centre's entries must have no common divisor.
    """
    centre, sizes = centres[0], np.abs(centres[0])
    if len(centres) > 1 or sizes.max() > limits().largest_centre:
        growth = sum((2 * int(np.abs(k).sum())).bit_length() for k in centres)
        few = max(1, min(bits, WORD.bit_length() - 1 - growth))
        return reduced(project(scaled(rows, few), [len(k) for k in centres], centres), bits)
    target = scale * enlargement(rows, bits) * rows
    rounded = np.round(target).astype(np.int64)
    members = {size: np.flatnonzero(sizes == size) for size in np.unique(sizes[sizes > 0]).tolist()}
    steps, left = _repairs(tuple(members)), rounded @ centre
    while len(unsolved := np.flatnonzero(left)):  # one unit at an entry k of the centre moves the sum by k
        moves = np.array(
            [steps.get(n) or int(math.copysign(max(members), n)) for n in left[unsolved].tolist()]
        )
        for move in np.unique(moves).tolist():
            those, entries = unsolved[moves == move], members[abs(move)]
            signs = np.sign(centre[entries]) * (1 if move > 0 else -1)
            cells = np.ix_(those, entries)
            best = np.argmin(signs * (target[cells] - rounded[cells]), axis=1)
            rounded[those, entries[best]] -= signs[best]
        left[unsolved] -= moves
    return reduced(rounded, bits)


@cache
def _repairs(sizes: tuple[int, ...]) -> dict[int, int]:
    """Return, for every sum up to twice the largest size, the first step of a shortest path to zero."""
    first, frontier = {0: 0}, [0]
    while frontier:  # breadth first, back from zero
        reached = {value + step: step for value in frontier for size in sizes for step in (size, -size)}
        new = {value: reached[value] for value in reached if abs(value) <= 2 * sizes[-1]}
        frontier = [value for value in new if value not in first]
        first = new | first
    return first


def scaled(rows: Array, bits: int) -> Integers:
    """Scale the rows so that their largest entry fits into `bits` bits, and round them."""
    return np.round(rows * enlargement(rows, bits)).astype(np.int64)


def enlargement(rows: Array, bits: int) -> float:
    """Return the factor with which the largest entry of the rows just fits into `bits` bits."""
    with np.errstate(all="ignore"):
        factor = float((2**bits - 1) / np.abs(rows).max())
    if not 0 < factor < math.inf:
        raise PlanError("plan: a strategy holds numbers that cannot be rounded")
    return factor


def reduced(rows: Integers, bits: int) -> Integers:
    """Divide by the greatest common divisor, then double all rows while they fit into `bits`.

    Large rows make the rounding of the noise to integers negligible.
    """
    divisor = int(np.gcd.reduce(rows, axis=None))
    rows = rows // divisor if divisor > 1 else rows
    missing = bits - max(int(rows.max()), -int(rows.min())).bit_length()
    return rows << missing if missing > 0 else rows


def nearest_integers(triangle: Array, images: Array) -> Array:
    """Return integers C with triangle · C close to the images (Babai's nearest plane).

    The coefficients of the last columns are rounded first; those of earlier ones make up for the error.
    """
    if len(triangle) == 1:
        return np.round(images / triangle)
    half = len(triangle) // 2
    last = nearest_integers(triangle[half:, half:], images[half:])
    first = nearest_integers(triangle[:half, :half], images[:half] - triangle[:half, half:] @ last)
    return np.concatenate([first, last])


def completed(rows: Array, bases: Sequence[Array]) -> Array:
    """Add faint rows for the rest of a space, so that rounding stays inside what is measured.

    The space is the Kronecker product of the spans of orthonormal bases.
    """
    inside = reduce(lambda left, right: np.asarray(np.kron(left, right)), bases)
    rest = np.linalg.qr(inside @ rows.T, mode="complete")[0][:, len(rows) :].T
    length = math.sqrt(float((rows**2).sum(axis=0).max()))
    return np.concatenate([rows, FAINT * length * (rest @ inside)])


@dataclass(frozen=True, eq=False)
class Span:
    """The span of rows over columns, each of which counts `roots`² times."""

    rows: NDArray[np.float64] | NDArray[np.int64]
    roots: Array

    @classmethod
    def of(cls, rows: NDArray[np.float64] | NDArray[np.int64]) -> Span:
        """Return the span of rows over columns that count once."""
        return cls(rows, np.ones(rows.shape[1]))

    @cached_property
    def lengths(self) -> Array:
        """The lengths of the rows times `roots`."""
        with np.errstate(over="ignore"):  # infinite lengths are refused
            pieces = (self.rows[:, at] * self.roots[at] for at in self.pieces())
            return np.sqrt(sum(map(_lengths, pieces), np.zeros(len(self.rows))))

    def pieces(self) -> Iterator[slice]:
        """Iterate over some columns at a time: rows over all of them may be large."""
        step = max(1, CHUNK // len(self.rows))
        return (slice(start, start + step) for start in range(0, self.rows.shape[1], step))

    def _scaled(self, at: slice = slice(None)) -> Array:
        """Return the rows times `roots`, scaled to length one."""
        return np.asarray(self.rows[:, at] * self.roots[at] / self.lengths[:, None])

    @cached_property
    def _gram(self) -> Array:
        """The Gram matrix of the rows scaled to length one."""
        pieces = map(self._scaled, self.pieces())
        return sum((piece @ piece.T for piece in pieces), np.zeros((len(self.rows),) * 2))

    def exceeds(self, value: float) -> bool:
        """Return whether all singular values of the rows times `roots` surely exceed a value."""
        with np.errstate(divide="ignore", invalid="ignore"):
            shift = (value / self.lengths) ** 2 + ROUNDING * len(self.rows)
        try:
            return bool(shift.max() < 1) and np.linalg.cholesky(self._gram - np.diag(shift)) is not None
        except np.linalg.LinAlgError:
            return False

    @cached_property
    def _tame_root(self) -> Array | None:
        """The Cholesky root of the Gram matrix, unless that would lose digits."""
        return tame_root(self._gram)

    @cached_property
    def _decomposed(self) -> tuple[Array, Array]:
        """An orthonormal basis (columns × rows), and the triangle R of the rows scaled to length one."""
        scaled, triangle = self._scaled(), self._tame_root
        if triangle is None:
            basis, triangle = np.linalg.qr(scaled.T)
            return basis, triangle
        return np.ascontiguousarray(solve_upper(triangle.T[::-1, ::-1], scaled[::-1])[::-1].T), triangle

    def is_independent(self) -> bool:
        """Return whether the rows are linearly independent, as far as floating point can tell."""
        if len(self.rows) > self.rows.shape[1] or not np.all(self.lengths > 0):
            return False
        return self._tame_root is not None or bool(np.abs(np.diagonal(self._decomposed[1])).min() > DEPENDENT)

    def combinations(self, rows: Array) -> Array:
        """Return the coefficients of `rows` in terms of the span's rows, which must be independent."""
        if self._tame_root is None:
            return np.asarray((rows * self.roots) @ self.inverse)
        pieces = (self._scaled(at) @ (rows[:, at] * self.roots[at]).T for at in self.pieces())
        products = sum(pieces, np.zeros((len(self.rows), len(rows))))
        return solve_cholesky(self._tame_root.T, products).T / self.lengths

    @property
    def triangle(self) -> Array:
        """The triangle of the QR decomposition of the rows times `roots`, as columns."""
        scaled = self._decomposed[1] if self._tame_root is None else self._tame_root
        return np.asarray(scaled * self.lengths)

    @property
    def basis(self) -> Array:
        """An orthonormal basis of the span (columns × rows)."""
        return np.eye(len(self.rows)) if len(self.rows) == self.rows.shape[1] else self._decomposed[0]

    @cached_property
    def inverse(self) -> Array:
        """The pseudo-inverse of the rows times `roots` (columns × rows): the rows must be independent."""
        basis, triangle = self._decomposed
        return np.ascontiguousarray(solve_upper(triangle, basis.T).T / self.lengths)


def _lattice(value: Any) -> Integers | None:
    return None if value is None else integers(value, 2)


class RowsStrategy(Strategy):
    """Linearly independent rows over the columns of a block's cells."""

    partition: Partition
    """Which cells have the same column."""
    matrix: Array
    """The rows on the distinct columns (rows × columns)."""
    lattice: Integers | None
    """Integer rows with the same span, if that is not the whole space in which they lie."""

    @property
    def rank(self) -> int:
        return len(self.matrix)

    @cached_property
    def _roots(self) -> Array:
        """The diagonal of D^½."""
        return np.sqrt(self.partition.sizes)

    @cached_property
    def span(self) -> Span:
        """The span of the rows of M·D^½."""
        return Span(np.ascontiguousarray(self.matrix), self._roots)  # the same digits as from a file

    def _over_cells(self, columns: Array) -> Array:
        """Return combinations of unit vectors of the columns over all cells."""
        return self.partition.spread(columns / self._roots)

    def written_out(self) -> Array:
        return self.matrix[:, self.partition.of_cells()]

    def _on_classes(self, rows: Array, axes: Sequence[int]) -> Array:
        """Return the sums of rows over the values of some axes within classes, with an axis for each."""
        tensor = rows.reshape(-1, *(self.shape[a] for a in axes))
        for position, axis in enumerate(axes, start=1):
            tensor = self.partition.class_sums(tensor, position, axis)
        return tensor

    def _on_columns(self, coarse: Array) -> Array:
        """Return rows over the coarse cells as combinations of unit vectors of the columns."""
        return self.partition.class_sums(coarse.reshape(len(coarse), -1), 1, -1) / self._roots

    def transform(self, rows: Array) -> Array:
        columns = self._on_columns(self._on_classes(rows, range(len(self.shape))))
        return (columns @ self.span.inverse).reshape(*rows.shape[: rows.ndim - len(self.shape)], self.rank)

    def covary(self, rows: Array) -> Array:
        image = self.transform(rows).reshape(-1, self.rank)
        return self._over_cells(image @ self.span.inverse.T).reshape(rows.shape)

    def undone(self, rounded: IntegerStrategy, answers: Array) -> Array:  # noqa: ARG002
        images = answers.reshape(self.rank, -1).T
        return self._over_cells(images @ self.span.inverse.T).reshape(*answers.shape[1:], -1)

    def orthonormal(self) -> Self:
        return replace(self, matrix=self.span.basis.T / self._roots, lattice=None)  # type: ignore[type-var]

    @property
    def leverage(self) -> float:
        return float(np.einsum("ij,ij->j", self.matrix, self.matrix).max())

    # --- product queries ---

    def variances(self, factors: Sequence[AxisRows]) -> Array:
        return self._squares(factors, self.span.inverse)

    def contains(self, factors: Sequence[AxisRows]) -> bool:
        if not self.whole and self.rank == self.dimension:
            return True  # rows that span the whole residual space contain what lies in it by construction
        inside = self._squares(factors, self.span.basis)
        return is_inside(inside, squared_lengths(factors), math.prod(self.shape))

    def _squares(self, factors: Sequence[AxisRows], root: Array) -> Array:
        """Return the squared lengths of (product row) @ root, for a root over the columns.

        Few products are written out; many are multiplied factor by factor.
        """
        counts = [len(rows) for _, rows in factors]
        if len(factors) > 1 and math.prod(counts) > self.rank:
            return self._contracted(factors, root)
        return np.concatenate([_lengths(rows @ root) for rows in self._products(factors)]).reshape(counts)

    def _products(self, factors: Sequence[AxisRows]) -> Iterator[Array]:
        """Iterate over pieces of all products of one row per factor, on the columns."""
        grid, coarse = self.partition.labels.shape, []
        for axes, rows in factors:  # with an axis of length one for every other
            sizes = (n if axis in axes else 1 for axis, n in enumerate(grid))
            coarse.append(self._on_classes(rows, axes).reshape(len(rows), *sizes))
        counts = [len(rows) for rows in coarse]
        total, step = math.prod(counts), max(1, CHUNK // self.partition.labels.size)
        for start in range(0, total, step):
            numbers = np.arange(start, min(start + step, total))
            chosen = zip(coarse, np.unravel_index(numbers, counts), strict=True)
            product = reduce(np.multiply, (rows[some] for rows, some in chosen))
            yield self._on_columns(np.broadcast_to(product, (numbers.size, *grid)))

    def _contracted(self, factors: Sequence[AxisRows], root: Array) -> Array:
        """Return the same squared lengths, factor by factor."""
        order = [1 + axis for axes, _ in factors for axis in axes]
        coarse = [self._on_classes(rows, axes).reshape(len(rows), -1) for axes, rows in factors]
        counts, sizes = zip(*(rows.shape for rows in coarse), strict=True)
        largest = max(math.prod(counts[:i]) * math.prod(sizes[i:]) for i in range(len(counts) + 1))
        step = max(1, CHUNK // largest)
        result = np.zeros(counts)
        for start in range(0, root.shape[1], step):
            piece = root[:, start : start + step].T / self._roots
            image = np.take(piece, self.partition.labels, axis=1).transpose(*order, 0).reshape(*sizes, -1)
            for factor, rows in enumerate(coarse):
                image = np.moveaxis(np.tensordot(rows, image, axes=(1, factor)), 0, factor)
            result += np.einsum("...k,...k->...", image, image)
        return result

    # --- integers ---

    @property
    def dimension(self) -> int:
        """The dimension of the space in which integer rows stay."""
        return self.matrix.shape[1] if self.whole else math.prod(n - 1 for n in self.shape)

    def obstacle(self) -> str | None:
        cells = self.matrix.shape[1]
        if self.lattice is not None or self.rank == self.dimension or cells <= limits().dense_cells:
            return None
        return (
            f"queries with fractional coefficients on {cells:,} cells cannot be measured exactly; give them "
            "in integers (times a common factor), or on fewer values"
        )

    @cached_property
    def _on_lattice(self) -> tuple[Array, Array]:
        """The triangle of the lattice's rows, and the rows' coordinates in the same orthonormal basis."""
        assert self.lattice is not None  # noqa: S101 - used only if there is one
        span = Span.of(self.lattice)
        return span.triangle, span.triangle @ span.combinations(self.matrix).T

    def rounded(self, centres: Sequence[Integers], bits: int) -> IntegerStrategy:
        """Round the rows' coefficients in terms of a lattice's rows or, if these are too long, the rows."""
        tried = [] if self.lattice is None else [self._rounded_on(self.lattice, bits)]
        missing = self.rank < self.dimension
        if tried and not (missing and self.matrix.shape[1] <= limits().dense_cells):
            return tried[0]
        good = limits().good_loss * self.leverage
        if not tried or self.rounding_loss(tried[0]) > good:
            bits = max([bits, *(rounded.bits for rounded in tried)])  # so that they compare
            rows = self._completed(centres) if missing else self.matrix
            tried.append(self._in_integers(self._factor(self._rounded_rows(rows, centres, bits))))
        return tried[0] if len(tried) == 1 else min(tried, key=self.rounding_loss)

    def _completed(self, centres: Sequence[Integers]) -> Array:
        """Return rows that span the whole space around centres, made once for all numbers of bits."""
        key = tuple(centre.tobytes() for centre in centres)
        made = vars(self).setdefault("_made", {})
        if key not in made:
            made[key] = completed(self.matrix, self._bases(centres))
        return cast("Array", made[key])

    @abstractmethod
    def _bases(self, centres: Sequence[Integers]) -> list[Array]:
        """Return orthonormal bases whose Kronecker product spans the space in which integer rows stay."""

    @abstractmethod
    def _rounded_rows(self, rows: Array, centres: Sequence[Integers], bits: int) -> Integers:
        """Round rows that span this space."""

    @abstractmethod
    def _factor(self, rows: Integers) -> Factor:
        """Return integer rows on the columns as a factor of all axes."""

    def _rounded_on(self, lattice: Integers, bits: int) -> IntegerStrategy:
        """Return integer combinations of a lattice's rows close to a multiple of the strategy's rows."""
        (triangle, images), bound = self._on_lattice, int(np.abs(lattice).sum(axis=0).max())
        finest = min(bits + LATTICE_BITS, WORD.bit_length() - 2)
        near = nearest_integers(triangle, images * enlargement(self.matrix, finest)).T
        if not np.abs(near).max() < WORD:
            return self._rounded_on(lattice, bits - 1)
        rows = Matrix(near.astype(np.int64)).exact_answers(lattice, bound).astype(np.int64)
        return self._in_integers(self._factor(reduced(rows, bits)))

    def rounding_loss(self, rounded: IntegerStrategy) -> float:
        return self._loss(rounded, lambda rows: float(np.linalg.norm(rows, 2)) ** 2)

    def _loss(self, rounded: IntegerStrategy, largest: Callable[[Array], float]) -> float:
        """Return the exact loss of all combinations of rows, or a good loss if that of each row surely is.

        A row b = (r − e)/c of integers r has the coefficients (unit vector − e R†)/c in terms of all integer
        rows R, with ‖R†‖ the reciprocal of their least singular value.
        """
        cost, ((_, factor),) = float(squared_sensitivity(rounded)), rounded.factors
        entries = cast("Matrix", getattr(factor, "inner", factor)).entries  # as `rounded` returns them
        rows, span = entries[: self.rank], Span(entries, self._roots)
        scale = float(np.linalg.norm(span.lengths[: self.rank]) / np.linalg.norm(self.span.lengths))
        if not 0 < scale < math.inf:  # the rows are too large for doubles
            return math.inf
        good = limits().good_loss * self.leverage * (1 - ROUNDING)
        spare = scale * math.sqrt(good / cost) - 1
        if spare > 0 and self.matrix.size > limits().light_cells:
            pieces = ((rows[:, at] - scale * self.matrix[:, at]) * self._roots[at] for at in span.pieces())
            if span.exceeds(math.sqrt(sum(map(_lengths, pieces), np.zeros(self.rank)).max()) / spare):
                return good
        if not span.is_independent():
            return math.inf
        return largest(span.combinations(self.matrix)) * cost

    # --- files ---

    def _is_sound(self) -> bool:
        partition, matrix = self.partition, self.matrix
        if partition.shape != self.shape or matrix.ndim != 2 or matrix.shape[1] != partition.columns:
            return False
        if not len(matrix) or matrix.min() <= -LARGEST or matrix.max() >= LARGEST:
            return False
        return self.span.is_independent() and (self.lattice is None or self._has_sound_lattice(self.lattice))

    def stands_on(self, centres: Sequence[Centre]) -> bool:
        """Return whether the rows lie in the residual space; whole queries lie in none."""
        return not self.whole and is_residual(self.matrix.reshape(-1, *self.shape), centres)

    def _has_sound_lattice(self, lattice: Integers) -> bool:
        """Return whether the lattice spans what the rows span."""
        if lattice.shape != self.matrix.shape:
            return False
        largest = LARGEST_INTEGER << len(self.shape)
        if not -largest <= lattice.min() <= lattice.max() <= largest:
            return False
        if not Span(lattice, self._roots).is_independent():
            return False
        rows = lattice * self._roots
        return is_inside(_lengths(rows @ self.span.basis), _lengths(rows), 0)


@dataclass(frozen=True, eq=False)
class DenseStrategy(RowsStrategy):
    """Any rows over the block's cells, inside a residual space."""

    kind = "dense"
    stored: ClassVar = {"shape": wholes, "matrix": partial(floats, ndim=2), "lattice": _lattice}

    shape: tuple[int, ...]
    matrix: Array
    lattice: Integers | None = None

    @cached_property
    def partition(self) -> Partition:  # type: ignore[override]
        """Which cells have the same column: none do."""
        labels = np.arange(math.prod(self.shape)).reshape(self.shape)
        return Partition(tuple(map(np.arange, self.shape)), labels)

    def _bases(self, centres: Sequence[Integers]) -> list[Array]:
        return [complement(k / k.sum()) for k in centres]

    def _rounded_rows(self, rows: Array, centres: Sequence[Integers], bits: int) -> Integers:
        if len(self.shape) > 1 or bits > 7:
            return round_rows(rows, centres, bits)
        # with few bits it matters at which scale one axis is rounded; the largest entry keeps its bits
        tried = [round_rows(rows, centres, bits, scale) for scale in SCALES]
        losses = [
            self._loss(self._in_integers(Matrix(entries)), lambda rows: float(_lengths(rows).max()))
            for entries in tried
        ]
        return tried[int(np.argmin(losses))]

    def _factor(self, rows: Integers) -> Factor:
        return Matrix(rows)

    @classmethod
    def of_integers(cls, rounded: IntegerStrategy) -> Self:
        ((_, factor),) = rounded.factors
        return cls(rounded.shape, factor.written_out())


@dataclass(frozen=True, eq=False)
class MergedStrategy(RowsStrategy):
    """Rows over cells of which many have the same column: few queries that are not split."""

    kind = "merged"
    whole = True
    stored: ClassVar = {
        "shape": wholes,
        "maps": lambda maps: tuple(integers(classes, 1) for classes in items(maps)),
        "labels": integers,
        "matrix": partial(floats, ndim=2),
        "lattice": _lattice,
    }

    shape: tuple[int, ...]
    maps: tuple[Integers, ...]
    """The class of every value, by axis."""
    labels: Integers
    """The column of every coarse cell, a combination of classes."""
    matrix: Array
    lattice: Integers | None = None

    @cached_property
    def partition(self) -> Partition:  # type: ignore[override]
        """Which cells have the same column."""
        return Partition(self.maps, self.labels)

    def _column_products(self) -> Products:
        if self.matrix.shape[1] <= MOST_CELLS:
            return Products.of(self.matrix).spread(self.partition.of_cells, self.partition.cells)
        corners = self.partition.corners(self.matrix, STRAIGHT)
        products = Products.of(self.matrix[:, self.partition.columns_of(corners)])
        return Products(None, None, products.least, products.farthest)

    def _bases(self, centres: Sequence[Integers]) -> list[Array]:  # noqa: ARG002 - there is no residual space
        return [np.eye(self.dimension)]

    def _rounded_rows(self, rows: Array, centres: Sequence[Integers], bits: int) -> Integers:  # noqa: ARG002
        return reduced(scaled(rows, bits), bits)

    def _factor(self, rows: Integers) -> Factor:
        return Merged(self.maps, self.labels, rows)

    @classmethod
    def of_integers(cls, rounded: IntegerStrategy) -> Self:
        ((_, factor),) = rounded.factors
        assert isinstance(factor, Merged)  # noqa: S101 - the registry chooses by kind
        return cls(rounded.shape, factor.maps, factor.labels, factor.matrix.astype(float))


def _lengths(rows: Array) -> Array:
    """Return the squared lengths of rows."""
    return np.einsum("ij,ij->i", rows, rows)
