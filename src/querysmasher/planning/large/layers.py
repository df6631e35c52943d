"""What is measured on every set of other attributes, together with large ones."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from querysmasher.errors import PlanError, TooLargeError
from querysmasher.planning.centre import Centres
from querysmasher.planning.decomposition import Decomposer
from querysmasher.planning.large.gram import LineGram
from querysmasher.planning.large.line import LineSolution
from querysmasher.planning.large.sharing import Lines, Product, shares
from querysmasher.planning.nothing import nothing_to_measure
from querysmasher.planning.solvers.bounds import lower_bound
from querysmasher.planning.subworkload import Piece, Term, separate
from querysmasher.schema import Schema
from querysmasher.workload.family import Family
from querysmasher.workload.groups import Group

Places = tuple[int, ...]

Key = tuple[tuple[int, Family], ...]
"""Families on large attributes."""


@dataclass(frozen=True, eq=False)
class Layer:
    """What is measured on one set of other attributes, together with large ones."""

    attributes: Places
    terms: tuple[Term, ...]
    """What is left on the set, each with the loss that the large attributes cause."""
    products: tuple[Product, ...] = ()
    """The strategies on large attributes, one block each; none if the set is measured by itself."""
    shares: tuple[float, ...] = (1.0,)
    """The share of the cost of each block, and of the loss."""
    parts: tuple[float, ...] = (1.0,)
    weights: Mapping[Key, float] | None = None
    """The loss that the large attributes cause, by families."""
    bound: float | None = None
    """A lower bound on √loss; None if it follows from that of the set."""
    quality: float = 1.0
    """√(bound / loss) of the large attributes."""


@dataclass(frozen=True, eq=False)
class Layers:
    """Chooses what is measured on every set of other attributes."""

    schema: Schema
    groups: Mapping[Key, Sequence[Group]]
    """The queries about other attributes, by what they ask about large ones."""
    public: bool
    """Whether everyone knows the total."""
    lines: Lines

    def around(self, centres: Centres) -> list[Layer]:
        """Return what is measured on every set of other attributes, the empty one first."""
        decomposer = Decomposer(self.schema, centres)
        sets: defaultdict[Places, dict[Key, tuple[Term, ...]]] = defaultdict(dict)
        for key, groups in self.groups.items():
            for one in decomposer.decompose(groups):
                sets[one.attributes][key] = one.terms
        if not sets:
            raise nothing_to_measure()
        return [self._layer(kept, sets[kept]) for kept in sorted(sets, key=lambda kept: (len(kept), kept))]

    def _layer(self, kept: Places, own: Mapping[Key, tuple[Term, ...]]) -> Layer:
        """Return what is measured on one set of other attributes."""
        blocks = _maximal([tuple(place for place, _ in key) for key in own])
        if not blocks:
            return Layer(kept, _merged(own, dict.fromkeys(own, 1.0)))
        public = self.public and not kept
        weigh = {key: math.fsum(term.energy for term in terms) for key, terms in own.items()}
        total = None if public else math.fsum(weight for key, weight in weigh.items() if not key)
        grams = [_grams(block, weigh, self.schema) for block in blocks]
        best: tuple[float, list[Product], list[LineSolution], list[float], float] | None = None
        for solutions in self.lines.choices(grams, total):
            products = [
                Product({a: s.strategy for a, s in zip(block, some, strict=True)})
                for block, some in zip(blocks, solutions, strict=True)
            ]
            loss, beta, precision = _joint_loss(blocks, products, weigh, total)
            if best is None or loss < best[0]:
                best = loss, products, [one for some in solutions for one in some], beta, precision
        if best is None:  # there is always a choice
            raise PlanError
        loss, products, flat, beta, precision = best
        weights, parts = {}, [0.0] * len(blocks)
        for key in own:
            place = _home(blocks, key)
            families = dict(key)
            if place is None:
                weights[key] = 0.0 if public else 1 / precision
                continue
            product = products[place]
            every, ofit = product.loss(families), 0.0
            if len(blocks) > 1 or public:
                ofit = product.total_loss(families)
                every = (every - ofit * product.total_variance) / beta[place] + ofit / precision
            weights[key] = every
            parts[place] += weigh[key] * every
        terms = _merged({key: t for key, t in own.items() if weights[key]}, weights)
        below, quality = self._bounds(grams, flat, total, own, loss)
        share = math.fsum(parts)
        return Layer(
            kept,
            terms,
            tuple(products),
            tuple(beta),
            tuple(part / share for part in parts),
            weights,
            below,
            quality,
        )

    def _bounds(
        self,
        grams: Sequence[Sequence[LineGram]],
        solutions: Sequence[LineSolution],
        total: float | None,
        own: Mapping[Key, tuple[Term, ...]],
        loss: float,
    ) -> tuple[float | None, float]:
        """Return a lower bound on √loss unless it follows, and √(bound / loss) of the large attributes."""
        lines = [gram for some in grams for gram in some]
        kinds = {term.pieces for terms in own.values() for term in terms}
        single = len(lines) == 1 and total is not None
        if all(len(some) == 1 for some in grams):
            if single:
                below = self.lines.bound(lines[0], total or 0.0, solutions[0])
            else:
                below = self.lines.shared(lines, solutions, total)
            quality = math.sqrt(min(1.0, below / loss))
            if len(kinds) == 1:
                return None, quality
        else:
            quality = 0.0
        # the least loss of a sum is at least the sum of the least losses
        simple = 0.0
        for key, terms in own.items():
            if not key:
                factor = 1.0 if total is not None else 0.0
            else:
                factor = math.prod(self.lines.alone(self.schema.sizes[a], family) for a, family in key)
            for term in terms:
                scale, placed = separate((term,))
                simple += factor * scale * math.prod(lower_bound(p.block) ** 2 for p in placed)
        return math.sqrt(simple), quality or math.sqrt(min(1.0, simple / loss))


def _maximal(places: Sequence[Places]) -> list[Places]:
    """Return the largest sets of large attributes; refuse sets that overlap."""
    distinct = sorted({own for own in places if own}, key=lambda own: (-len(own), own))
    found: list[Places] = []
    for own in distinct:
        if any(set(own) <= set(other) for other in found):
            continue
        if any(set(own) & set(other) for other in found):
            msg = (
                "workload: attributes of very many values may be asked together in one combination only, got "
                "several that overlap. Remedies: coarser values or bins, or fewer combinations of these"
            )
            raise TooLargeError(msg)
        found.append(own)
    return found


def _home(blocks: Sequence[Places], key: Key) -> int | None:
    """Return the block that answers queries about some large attributes."""
    asked = {place for place, _ in key}
    return next((i for i, block in enumerate(blocks) if asked and asked <= set(block)), None)


def _grams(block: Places, weigh: Mapping[Key, float], schema: Schema) -> list[LineGram]:
    """Return the Gram matrix of each large attribute of a block; others count by their queries."""
    result = []
    for attribute in block:
        asked, total = [], 0.0
        for key, weight in weigh.items():
            families = dict(key)
            if not set(families) <= set(block) or not families:
                continue
            others = math.prod(families[a].rows for a in block if a != attribute and a in families)
            if attribute in families:
                asked.append((families[attribute], weight * others))
            else:
                total += weight * others
        result.append(LineGram.of(schema.sizes[attribute], asked, total))
    return result


def _joint_loss(
    blocks: Sequence[Places], products: Sequence[Product], weigh: Mapping[Key, float], total: float | None
) -> tuple[float, list[float], float]:
    """Return the loss at unit cost, the share of each block, and the precision of the total."""
    every, ofit = [0.0] * len(blocks), [0.0] * len(blocks)
    for key, weight in weigh.items():
        place = _home(blocks, key)
        if place is not None:
            every[place] += weight * products[place].loss(dict(key))
            if len(blocks) > 1 or total is None:
                ofit[place] += weight * products[place].total_loss(dict(key))
    variances = [product.total_variance for product in products]
    if len(blocks) == 1 and total is not None:
        return every[0] + total * variances[0], [1.0], 1 / variances[0]
    rests = [e - m * v for e, m, v in zip(every, ofit, variances, strict=True)]
    known = None if total is None else total + math.fsum(ofit)
    beta, precision = shares(rests, [1 / v for v in variances], known)
    loss = math.fsum(r / b for r, b in zip(rests, beta, strict=True)) + (
        0.0 if known is None else known / precision
    )
    return loss, beta, precision


def _merged(own: Mapping[Key, tuple[Term, ...]], weights: Mapping[Key, float]) -> tuple[Term, ...]:
    """Return the sum of all terms, each with its weight."""
    found: dict[tuple[Piece, ...], float] = {}
    for key, terms in own.items():
        for term in terms:
            found[term.pieces] = found.get(term.pieces, 0.0) + weights[key] * term.coefficient
    return tuple(Term(coefficient, pieces) for pieces, coefficient in found.items())
