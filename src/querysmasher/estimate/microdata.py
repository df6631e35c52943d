"""Synthetic records whose tables follow an estimate, as frames, files and streams.

Attributes are drawn one after the other, each given the two earlier ones on which it depends most, from the
estimated table of the three. Values are not drawn independently but rounded in a controlled way within every
combination of the two, which leaves far less noise. Records that nobody can have are dropped. Then weights
are raked until the records follow all pairs, and as many records as wanted are taken in proportion to them.
Finally these move between values, so that they follow all tables that were measured or asked for (`moves`).
Each block of records makes up for what the blocks before it lack, so that any number of records takes the
memory of one block.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from querysmasher.arrays import Array, one_core
from querysmasher.attributes import Attribute
from querysmasher.errors import TooLargeError, WorkloadError
from querysmasher.estimate.evidence import AttributeSet
from querysmasher.estimate.integers import along
from querysmasher.estimate.moves import Codes, Followed
from querysmasher.estimate.table_model import Model
from querysmasher.files import replacing
from querysmasher.formats import format_of
from querysmasher.formatting import count, one_line
from querysmasher.progress import Bar
from querysmasher.release.tidy import frame_of, value_type

MAX_FRAME = 50_000_000
"""Maximum number of records of a frame; `write` streams more to a file."""

MOST = 10**10
"""Maximum number of records."""

BLOCK = 50_000
"""Maximum number of records of a block."""

POOL = 3
"""Number of candidates per record."""

SWEEPS = 12
"""Number of rounds of raking."""

PAIRS = 400
"""Maximum number of pairs that are raked: the strongest."""

PARENT_CELLS = 1_000_000
"""Maximum number of cells of a table from which an attribute is drawn."""

STEEP = 10.0
"""Maximum factor by which a step of raking changes a weight."""

CELLS, VALUES = 30_000_000, 150_000
"""Maximum number of cells of all tables that are followed, and of values of their attributes."""


@dataclass(frozen=True, eq=False, repr=False)
class Microdata:
    """Synthetic records, drawn from an estimate so that their tables follow it.

    They do not describe real people. Iterating yields Arrow tables, one block after the other, in constant
    memory: always the same ones. The columns are the attributes; a binned one has the middle of its bin, or
    the edge of an open-ended one. The value of missing ones, if it stands beside the others, is null.
    """

    model: Model
    count: int
    seed: int
    about: Mapping[str, Any]
    asked: frozenset[AttributeSet]
    """The sets of the tables that were measured or asked for."""

    note: ClassVar[str] = "synthetic records, not of real people, from an estimate: shrunk, not unbiased"

    def __len__(self) -> int:
        """Count the records."""
        return self.count

    def __iter__(self) -> Iterator[Any]:
        """Iterate over blocks of records, as Arrow tables."""
        return self._blocks(str)

    def _blocks(self, safe: Callable[[str], str], progress: bool | None = None) -> Iterator[Any]:
        """Iterate over blocks of records; `safe` is applied to every string."""
        values = [_values(attribute, safe) for attribute in self.model.schema]
        followed = self._following()
        blocks = -(-self.count // BLOCK)
        with Bar("Drawing records", blocks * followed.rounds * len(values), progress) as bar, one_core():
            for number, start in enumerate(range(0, self.count, BLOCK)):
                rng = np.random.default_rng([self.seed, number])
                block = self._block(min(BLOCK, self.count - start), rng)
                block = followed.moved(block, rng, bar.advance)
                columns = [column.take(pa.array(block[:, i])) for i, column in enumerate(values)]
                yield pa.table(columns, schema=self._schema)

    def _following(self) -> Followed:
        """Return the tables that blocks of records follow, one after the other.

        Those of the fewest attributes come first, and among them the ones whose attributes depend on each
        other most, as long as there is room.
        """
        sizes, strengths = self._sizes, self._strengths
        sets = {(a,) for a in range(len(sizes))} | set(self._pairs) | (self.asked - {()})

        def place(subset: AttributeSet) -> tuple[float, ...]:
            return len(subset), -sum(strengths[pair] for pair in combinations(subset, 2)), *subset

        cells = values = 0
        chosen: list[AttributeSet] = []
        for subset in sorted(sets, key=place):
            size, moves = self._cells(subset), sum(sizes[a] for a in subset)
            if size <= PARENT_CELLS and cells + size <= CELLS and values + moves <= VALUES:
                chosen.append(subset)
                cells, values = cells + size, values + moves
        full = max(1, min(BLOCK, self.count))
        scale = full / max(self.model.total, 1e-300)
        tables = (table * scale for table in self.model.tables(chosen))
        return Followed(self.model.zeros, sizes, full, chosen, tables)

    def to_frame(self, backend: Any = "pyarrow") -> Any:
        """Return all records as a data frame of any eager backend of narwhals that is installed."""
        if self.count > MAX_FRAME:
            msg = f"to_frame: {self.count:,} records do not fit in memory; use write(path), or iterate"
            raise TooLargeError(msg)
        return frame_of(pa.concat_tables([self._schema.empty_table(), *self]), backend)

    def write(self, path: str | os.PathLike[str], progress: bool | None = None) -> None:
        """Write the records to a file, block by block, in constant memory.

        The ending of the name states the format, such as .parquet or .csv.
        """
        form = format_of(path, of_records=True)
        about = {**self.about, "note": self.note}
        with (
            replacing(Path(path)) as temporary,
            form.write(temporary, self._schema, about) as (write, _),
        ):
            for table in self._blocks(form.safe, progress):
                write(table)

    @property
    def _sizes(self) -> tuple[int, ...]:
        return self.model.schema.sizes

    @property
    def _schema(self) -> Any:
        return pa.schema([(one_line(a.name), _values(a).type) for a in self.model.schema])

    @property
    def _pairs(self) -> list[AttributeSet]:
        """The pairs of attributes whose tables are not too large."""
        pairs: Iterable[AttributeSet] = combinations(range(len(self._sizes)), 2)
        return [pair for pair in pairs if self._cells(pair) <= PARENT_CELLS]

    def _cells(self, attributes: Iterable[int]) -> int:
        return math.prod(self._sizes[a] for a in attributes)

    def __repr__(self) -> str:
        """Say what the records are."""
        return f"Microdata of {count(self.count, 'record')} ({self.note})"

    @cached_property
    def _strengths(self) -> Array:
        """How far each pair is from independence, as a fraction of the records."""
        return self.model.strengths(zip(self._pairs, self.model.tables(self._pairs), strict=True))

    @cached_property
    def _order(self) -> list[tuple[int, AttributeSet]]:
        """Attributes in the order in which they are drawn, each with up to two on which it depends."""
        strengths = self._strengths
        first = int(strengths.sum(axis=1).argmax())
        order: list[tuple[int, AttributeSet]] = [(first, ())]
        left = set(range(len(self._sizes))) - {first}
        while left:
            drawn = [a for a, _ in order]
            nearest = max(sorted(left), key=lambda a: strengths[a, drawn].max())
            parents: list[int] = []
            for parent in sorted(drawn, key=lambda p: -strengths[nearest, p]):
                fits = self._cells((nearest, parent, *parents)) <= PARENT_CELLS
                if len(parents) < 2 and strengths[nearest, parent] > 0 and fits:
                    parents.append(parent)
            order.append((nearest, tuple(sorted(parents))))
            left.remove(nearest)
        return order

    def _block(self, count: int, rng: np.random.Generator) -> Codes:
        """Return records that follow pairs, in random order."""
        pool = self._pool(POOL * count + 100, rng)
        if not len(pool):
            msg = "microdata: the schema's impossible combinations exclude all cells with a positive estimate"
            raise WorkloadError(msg)
        weights = self._raked(pool)
        ordered = np.lexsort([rng.random(len(pool)), *(pool[:, a] for a, _ in reversed(self._order))])
        sums = np.cumsum(weights[ordered])
        steps = (np.arange(count) + rng.random()) * (sums[-1] / count)
        chosen = ordered[np.minimum(np.searchsorted(sums, steps, side="right"), len(pool) - 1)]
        return pool[rng.permutation(chosen)]

    def _pool(self, count: int, rng: np.random.Generator) -> Codes:
        """Return candidates: attribute by attribute, each given its parents."""
        pool = np.zeros((count, len(self._sizes)), dtype=np.int64)
        for attribute, parents in self._order:
            fractions = self._conditional(attribute, parents)
            codes = np.zeros(count, dtype=np.int64)
            for parent in parents:
                codes = codes * self._sizes[parent] + pool[:, parent]
            order = np.lexsort([rng.random(count), codes])
            cells, counts = np.unique(codes, return_counts=True)
            expected = fractions[cells] * counts[:, None]
            mixed = rng.permutation(self._sizes[attribute])  # so that no value is favoured by its index
            drawn = along(expected[:, mixed], rng).astype(np.int64)
            pool[order, attribute] = np.repeat(np.tile(mixed, len(cells)), drawn.ravel())
        return pool[self.model.zeros.allowed(pool)]

    def _conditional(self, attribute: int, parents: AttributeSet) -> Array:
        """Return the distribution of an attribute in every cell of its parents."""
        subset = tuple(sorted((attribute, *parents)))
        table = np.moveaxis(self.model.table(subset), subset.index(attribute), -1)
        single = self.model.single(attribute)
        even = single if single.sum() > 0 else np.ones_like(single)
        faint = table.reshape(-1, self._sizes[attribute]) + 1e-9 * even / even.sum()
        return faint / faint.sum(axis=1, keepdims=True)

    def _raked(self, pool: Codes) -> Array:
        """Return weights with which the candidates follow the pairs."""
        pairs = sorted(self._pairs, key=lambda pair: self._strengths[pair])[-PAIRS:]
        targets = [table.ravel() / max(self.model.total, 1e-300) for table in self.model.tables(pairs)]
        codes = [pool[:, i] * self._sizes[j] + pool[:, j] for i, j in pairs]
        weights = np.full(len(pool), 1 / len(pool))
        for _ in range(SWEEPS):
            for target, cells in zip(targets, codes, strict=True):
                sums = np.bincount(cells, weights=weights, minlength=len(target))
                ratio = np.divide(target, sums, out=np.ones_like(sums), where=sums > 0)
                weights *= np.clip(ratio, 1 / STEEP, STEEP)[cells]
            weights /= weights.sum()
        return weights


def _values(attribute: Attribute, safe: Callable[[str], str] = str) -> Any:
    """Return the values of an attribute as they stand in records."""
    values: list[Any] = list(attribute.values[: attribute.listed])
    if attribute.edges is not None:  # an open-ended bin has no middle, but an end
        low, high = (ends.tolist() for ends in attribute.ends)
        finite = (
            (b if a == -math.inf else a, a if b == math.inf else b) for a, b in zip(low, high, strict=True)
        )
        values = [(a + b) / 2 for a, b in finite]
    values += [None if value == attribute.missing else value for value in attribute.beside]
    kind = value_type([value for value in values if value is not None])
    return pa.array([safe(str(v)) if kind == pa.string() and v is not None else v for v in values], kind)
