"""Synthetic records whose tables follow an estimate, as frames, files and streams.

Attributes are drawn one after the other, each given the two earlier ones on which it depends most, from the
estimated table of the three. Values are not drawn independently but rounded in a controlled way within every
combination of the two, which leaves far less noise. Records that nobody can have are dropped. Those that are
taken move, so that they follow all tables on one and two attributes, and all that were measured or asked for
(`moves`). Where prefixes or ranges were asked for, these tables are near those with the estimated sums.
Each record may have a weight, with which tables are closer still (`Followed.weighted`).
Each block of records makes up for what the blocks before it lack, so that any number of records takes the
memory of one block. The number of a binned attribute is drawn evenly inside its bin.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from querysmasher.arrays import Array, one_core
from querysmasher.attributes import Attribute
from querysmasher.errors import OutsideMeasuredSpaceError, TooLargeError, WorkloadError
from querysmasher.estimate.estimate import Estimate
from querysmasher.estimate.estimate_errors import EstimateError, EstimateErrors
from querysmasher.estimate.evidence import AttributeSet
from querysmasher.estimate.integers import IntegerModel, along
from querysmasher.estimate.moves import Codes, Followed
from querysmasher.estimate.table_model import Model
from querysmasher.files import replacing
from querysmasher.formats import format_of
from querysmasher.formatting import count, one_line
from querysmasher.progress import Bar
from querysmasher.release.tidy import frame_of, value_type
from querysmasher.release.writing import field_of, write_description

MAX_FRAME = 50_000_000
"""Maximum number of records of a frame; `write` streams more to a file."""

MOST = 10**10
"""Maximum number of records."""

BLOCK = 50_000
"""Maximum number of records of a block."""

POOL = 3
"""Number of candidates per record."""

PARENT_CELLS = 1_000_000
"""Maximum number of cells of a table from which an attribute is drawn."""

USES = (
    "Synthetic records, which do not describe real people. They are good for tables and models of few "
    "attributes at a time, for software that expects records, for teaching and testing. They contain no more "
    "information than the estimate that they follow. Do not compute standard errors from them, do not look "
    "for individual records or rare cells in them, and do not interpret combinations of attributes for which "
    "no table was asked."
)
"""What the file says of records."""

DRAWN = "A number drawn evenly inside its bin; in an open-ended bin, the number next to the edge."
"""What the file says of numbers in bins."""

WEIGHT = "weight"
"""The name of the column of weights."""

WEIGHTED = (
    "How many of the estimated records this one stands for. Weights are fitted so that sums of them come "
    "closer to the estimated tables than numbers of records do, which matters most if records are few. Sum "
    "them for tables, shares and means of few attributes. They are not survey weights: do not compute "
    "standard errors from them. Ignore them where every row is one person, as in tests of software."
)
"""What the file says of weights."""

CELLS, VALUES = 30_000_000, 150_000
"""Maximum number of cells of all tables that are followed, and of values of their attributes."""


@dataclass(frozen=True, eq=False, repr=False)
class Microdata:
    """Synthetic records, drawn from an estimate so that their tables follow it.

    They do not describe real people. Iterating yields Arrow tables, one block after the other, in constant
    memory: always the same ones. The columns are the attributes. A number in bins is drawn evenly inside its
    bin, from the multiples of the step if there is one; in an open-ended bin, it is the number next to the
    edge. The value of missing ones, if it stands beside the others, is null. With `weights`, the last column
    is `weight`: how many of the estimated records one stands for.
    """

    estimate: Estimate
    count: int
    seed: int
    weights: bool = False

    note: ClassVar[str] = "synthetic records, not of real people, from an estimate: shrunk, not unbiased"

    def __len__(self) -> int:
        """Count the records."""
        return self.count

    def __iter__(self) -> Iterator[Any]:
        """Iterate over blocks of records, as Arrow tables."""
        return self._blocks(str)

    @cached_property
    def model(self) -> Model:
        """Computes the tables of the estimate, near those with the sums that were asked for."""
        estimate = self.estimate
        return (
            estimate.model
            if estimate.seed is not None
            else estimate.model.near(estimate.sums.tables(estimate.workload))
        )

    @property
    def _tables(self) -> Model | IntegerModel:
        """Computes the tables that records follow."""
        return self.model if self.estimate.seed is None else self.estimate.tables

    @property
    def about(self) -> dict[str, Any]:
        """Where the records come from and what is guaranteed, as plain data."""
        drawn = {"note": self.note, "records": self.count, "seed": self.seed}
        return {**self.estimate.about, **drawn, **({"weights": True} if self.weights else {})}

    def _blocks(self, safe: Callable[[str], str], progress: bool | None = None) -> Iterator[Any]:
        """Iterate over blocks of records; `safe` is applied to every string."""
        columns = [_drawer(attribute, safe) for attribute in self.model.schema]
        followed = self._following()
        blocks = -(-self.count // BLOCK)
        with Bar("Drawing records", blocks * followed.rounds * len(columns), progress) as bar:
            for number, start in enumerate(range(0, self.count, BLOCK)):
                rng = np.random.default_rng([self.seed, number])
                with one_core():
                    block = self._block(min(BLOCK, self.count - start), rng)
                    block = followed.moved(block, rng, bar.advance)
                    weights = [self._scale * followed.weighted(block)] if self.weights else []
                made = [draw(block[:, i], rng) for i, draw in enumerate(columns)]
                made += map(pa.array, weights)
                yield pa.table(made, schema=self._schema)
        self.__dict__["_distances"] = followed.distances

    @cached_property
    def _distances(self) -> dict[AttributeSet, float]:
        """How far the tables that records follow are from those of the estimate, in records drawn.

        Those of weighted records are sums of weights with a mean of one.
        """
        for _ in self:
            pass
        return self._distances

    @property
    def followed(self) -> list[tuple[str, ...]]:
        """The tables in the workload that records follow."""
        asked = (group.attributes for group in self.estimate.workload)
        positions = self.model.schema.positions
        return [names for names in asked if tuple(sorted(positions(names))) in self._distances]

    def error(self, *attributes: str) -> EstimateError:
        """Return the error of a table of the records; without attributes, the mean over the workload.

        See `errors`.
        """
        return self.errors([attributes] if attributes else None).mean

    def errors(self, tables: Sequence[Sequence[str]] | None = None) -> EstimateErrors:
        """Return the errors of tables of the records, by default of those in the workload that they follow.

        The distance of a table of the records from the estimated one, before rounding, is known, so that its
        error is at most that of the estimate plus this distance. Tables of records with weights are sums of
        weights; without, they are scaled to the estimated number of records. An interval for the error of the
        estimate gives one for the records, wider by the distance on both sides.
        """
        schema, known, model = self.model.schema, self._distances, self.estimate.model
        tables = self.followed if tables is None else tables
        unrounded = replace(self.estimate, seed=None).computed_by(model)
        each = []
        for error in unrounded.errors(tables).each:
            subset = tuple(sorted(schema.positions(error.tables[0])))
            if subset not in known:
                names = ", ".join(error.tables[0])
                msg = f"tables: expected tables that records follow, got ({names}); ask for it when planning"
                raise OutsideMeasuredSpaceError(msg)
            away = known[subset] * self._scale
            if self._tables is not model:
                away += float(np.abs(self._tables.table(subset) - model.table(subset)).sum())
            each.append(replace(error, away=away))
        return EstimateErrors(tuple(each))

    def _following(self) -> Followed:
        """Return the tables that blocks of records follow, one after the other.

        Those of the fewest attributes come first, and among them the ones whose attributes depend on each
        other most, as long as there is room. Public ones are met exactly, if there are as many records.
        """
        sizes, strengths = self._sizes, self._strengths
        public = self.model.evidence.public if self.count == self.model.total else {}
        sets = {(a,) for a in range(len(sizes))} | set(self._pairs) | set(public)
        for workload in (self.estimate.workload, self.estimate.release.workload):
            sets |= {tuple(sorted(self.model.schema.positions(g.attributes))) for g in workload}

        def place(subset: AttributeSet) -> tuple[float, ...]:
            return len(subset), -sum(strengths[pair] for pair in combinations(subset, 2)), *subset

        cells = values = 0
        chosen: list[AttributeSet] = []
        for subset in sorted(sets - {()}, key=place):
            size, moves = self._cells(subset), sum(sizes[a] for a in subset)
            if size <= PARENT_CELLS and cells + size <= CELLS and values + moves <= VALUES:
                chosen.append(subset)
                cells, values = cells + size, values + moves
        full = max(1, min(BLOCK, self.count))
        scale = full / max(self.estimate.total, 1e-300)
        tables = (table * scale for table in self._tables.tables(chosen))
        return Followed(self.model.zeros, sizes, full, chosen, tables, public)

    def to_frame(self, backend: Any = "pyarrow") -> Any:
        """Return all records as a data frame of any eager backend of narwhals that is installed."""
        if self.count > MAX_FRAME:
            msg = f"to_frame: {self.count:,} records do not fit in memory; use write(path), or iterate"
            raise TooLargeError(msg)
        return frame_of(pa.concat_tables([self._schema.empty_table(), *self]), backend)

    def write(self, path: str | os.PathLike[str], progress: bool | None = None) -> None:
        """Write the records to a file, block by block, in constant memory.

        The ending of the name states the format, such as .parquet or .csv. A file of the same name, followed
        by `.datapackage.json`, describes the records, and states their error and what they are good for.
        """
        form = format_of(path, of_records=True)
        with (
            replacing(Path(path)) as temporary,
            form.write(temporary, self._schema, self.about) as (write, _),
        ):
            for table in self._blocks(form.safe, progress):
                write(table)
        words = {"title": "Synthetic records", "description": USES}
        source = {**self.about, **({"error": str(self.errors().mean)} if self.followed else {})}
        write_description(Path(path), form, self._fields, source, {}, words, together=False)

    @property
    def _fields(self) -> list[dict[str, Any]]:
        """Descriptions of the columns."""
        words: list[dict[str, str | None]] = []
        for attribute in self.model.schema:
            drawn = None if attribute.edges is None else DRAWN
            said = " ".join(filter(None, [attribute.description, drawn])) or None
            words.append({"title": attribute.title, "description": said, "unit": attribute.unit})
        words += [{"title": "Weight", "description": WEIGHTED}] if self.weights else []
        return [field_of(field, False, **said) for field, said in zip(self._schema, words, strict=True)]

    @property
    def _sizes(self) -> tuple[int, ...]:
        return self.model.schema.sizes

    @property
    def _schema(self) -> Any:
        weight = [(WEIGHT, pa.float64())] if self.weights else []
        return pa.schema([*((one_line(a.name), _values(a).type) for a in self.model.schema), *weight])

    @property
    def _scale(self) -> float:
        """How many of the estimated records one stands for, on average."""
        return self.estimate.total / max(self.count, 1)

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
        """Return records to begin with, in random order."""
        pool = self._pool(POOL * count + 100, rng)
        if not len(pool):
            msg = "microdata: the schema's impossible combinations exclude all cells with a positive estimate"
            raise WorkloadError(msg)
        return pool[np.resize(rng.permutation(len(pool)), count)]

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


def _values(attribute: Attribute, safe: Callable[[str], str] = str) -> Any:
    """Return the values of an attribute as they stand in records; of bins, their lowest numbers."""
    values: list[Any] = list(attribute.values[: attribute.listed])
    if attribute.edges is not None:
        values = _numbers(attribute, _reaches(attribute)[0])
    values += [None if value == attribute.missing else value for value in attribute.beside]
    kind = value_type([value for value in values if value is not None])
    return pa.array([safe(str(v)) if kind == pa.string() and v is not None else v for v in values], kind)


def _reaches(attribute: Attribute) -> tuple[Array, Array]:
    """Return the lowest and the highest number of each bin; an open-ended one has a single number."""
    low, high = attribute.ends
    if attribute.step is None and low[0] == -math.inf:  # the edge belongs to the next bin
        high = np.concatenate([np.nextafter(high[:1], low[0]), high[1:]])
    return np.where(low == -math.inf, high, low), np.where(high == math.inf, low, high)


def _numbers(attribute: Attribute, numbers: Array) -> list[Any]:
    """Return numbers in bins as they stand in records: integers if edges and step are integers."""
    stated = (*(attribute.edges or ()), attribute.step)
    whole = all(isinstance(number, int) or number in (-math.inf, math.inf) for number in stated)
    return numbers.astype(np.int64).tolist() if whole else numbers.tolist()


def _drawer(attribute: Attribute, safe: Callable[[str], str]) -> Callable[[Codes, np.random.Generator], Any]:
    """Return a function that draws the column of an attribute for the indexes of values."""
    values = _values(attribute, safe)
    if attribute.edges is None:
        return lambda codes, _: values.take(pa.array(codes))
    low, high = _reaches(attribute)
    step = attribute.step

    def drawn(codes: Codes, rng: np.random.Generator) -> Any:
        bins = np.minimum(codes, len(low) - 1)
        parts = rng.random(len(codes))
        if step is None:
            numbers = low[bins] + parts * (high - low)[bins]
        else:
            numbers = low[bins] + step * np.floor(parts * (np.round((high - low)[bins] / step) + 1))
        column = pa.array(_numbers(attribute, numbers), values.type)
        return column if len(values) == len(low) else pc.if_else(pa.array(codes < len(low)), column, None)

    return drawn
