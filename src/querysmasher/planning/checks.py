"""Refuse workloads that are too large or too uneven, or that need no measurement, before any work."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING, cast

import numpy as np

from querysmasher.errors import PlanError, TooLargeError, as_given
from querysmasher.planning.grading import SAFE, lengths
from querysmasher.planning.limits import limits
from querysmasher.planning.lines.gram import is_total
from querysmasher.planning.split import is_few
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.unit import AttributeSets, Groups, Names, Unit
from querysmasher.schema import Schema
from querysmasher.workload.family import Family, Structure
from querysmasher.workload.workload import Workload

if TYPE_CHECKING:
    from querysmasher.workload.hierarchy import Hierarchy


def check_arguments(workload: object, budget: object) -> None:
    """Refuse arguments that are not a workload and a budget."""
    if not isinstance(workload, Workload):
        several = isinstance(workload, list | tuple) and any(isinstance(item, Workload) for item in workload)
        remedy = "join them: sum(workloads)" if several else "build one, as in qs.marginals(schema, [1, 2])"
        msg = f"workload: expected a Workload as first argument, got {as_given(workload)}; {remedy}"
        raise PlanError(msg)
    if not isinstance(budget, Budget):
        number = isinstance(budget, int | float) and not isinstance(budget, bool) and 0 < budget < 100
        amount = f"{budget:g}" if number else "1.0"
        msg = f"budget: expected PrivacyCost, zCDP, GaussianDP or ApproxDP, got {as_given(budget)}; state "
        example = f"qs.ApproxDP(epsilon={amount}, delta=1e-6) or qs.zCDP(rho={amount if number else 0.5})"
        raise PlanError(f"{msg}what it measures, as in {example}")


def exact_sets(workload: Workload, exact: object) -> AttributeSets:
    """Return the sets of attributes on which a workload asks for every count; refuse other queries.

    A group asks for every count if its queries, with the number of records, determine how often each
    combination of values occurs. A family that asks only for all records leaves its attribute out, and one
    that does not distinguish some values asks for the counts of groups of values.
    """
    if not isinstance(exact, Workload):
        example = "such as qs.marginals(schema, ['state'])"
        raise PlanError(f"exact: expected a workload of counts to publish, {example}, got {as_given(exact)}")
    if exact.schema != workload.schema:
        raise PlanError("exact: expected a workload on the schema of the planned one, got another schema")
    sets: list[Names] = [()]
    for group in exact:
        parts = [(names, family) for names, family in group.parts() if _distinctions(family)[1]]
        names = [name for on, _ in parts for name in on]
        known: list[str | Groups] = []
        for on, family in parts:
            some = None if family.closed_form else _groups(exact.schema, on, family, alone=len(parts) == 1)
            if some == ():
                raise PlanError(
                    f"exact: expected queries that determine every count on ({', '.join(names)}), or that of "
                    f"every group of values of one of these, got {group.kind}; publish all of them, as in "
                    f"qs.marginals(schema, {names})"
                )
            known += some or on
        cells, most = math.prod(exact.schema.shape(names)), limits().structured_cells
        if cells > most:
            which = f"the exact table on ({', '.join(names)}) has {cells:,} cells"
            raise TooLargeError(f"exact: {which}, more than the {most:,} that are counted at once")
        if all(_distinctions(family)[0] for family in group.families):
            sets.append(tuple(known))
    return tuple(sets)


def _groups(schema: Schema, on: tuple[str, ...], family: Family, *, alone: bool) -> tuple[Groups, ...] | None:
    """Return the groups of values that queries do not distinguish, if they determine the counts of all.

    None if they determine those of single values, and nothing if of neither. If they are `alone`, the number
    of records is known beside them.
    """
    (attribute, *others) = (schema[name] for name in on)
    if family.structure is Structure.TREE:
        tree = cast("Hierarchy", family)
        if tree.leaves:
            return None
        level = int(np.argmax([len(names) for names in tree.names]))
        numbers, labels = tree.groups[level], tuple(map(str, tree.names[level]))
        title = f"{tree.titles[level]} of {attribute.name}" if tree.titles else ""
    else:
        rows = family.matrix()
        columns, first, found = np.unique(rows, axis=1, return_index=True, return_inverse=True)
        numbers, title = np.argsort(np.argsort(first))[found.ravel()], ""
        if np.linalg.matrix_rank(np.vstack([columns, np.ones((1, first.size))][: 1 + alone])) < first.size:
            return ()
        said = family.labels([attribute]) if not others else []
        inside = columns[:, np.argsort(first)].T != 0
        labels = tuple(
            " and ".join(text if is_in else f"not ({text})" for text, is_in in zip(said, each, strict=False))
            for each in (inside if len(said) == 1 else [])
        ) or tuple(f"{k}" for k in range(1, first.size + 1))
    if len(labels) == family.cells or others:
        return None if len(labels) == family.cells else ()
    listed = " / ".join(labels) if len(labels) < 4 else f"{len(labels)} groups"
    title = title or f"group of {attribute.name} ({listed})"
    return (Groups(attribute.name, title, labels, tuple(numbers.tolist())),)


def unprotected(schema: Schema, unit: Unit, attributes: Collection[int]) -> PlanError:
    """Return the error that refuses to measure what neighbours agree on, but is not published."""
    names = [schema.names[a] for a in attributes]
    if unit.known(schema).groups.keys() & set(attributes):
        return PlanError(
            f"exact: the planned queries need counts on ({', '.join(names)}), of which {unit.agreed_words} "
            "are left unprotected, so noise would protect nobody; publish one table of all these, by "
            "exact=qs.queries(schema, ...), or plan no query that combines these attributes"
        )
    return PlanError(
        f"exact: the planned queries need the counts on ({', '.join(names)}), which the exact counts "
        f"{unit.exact_words} leave unprotected, so noise would protect nobody; publish these as well, by "
        f"exact=qs.marginals(schema, {names}), or plan no query that combines these attributes"
    )


def check_sizes(workload: Workload, large: Collection[int] = ()) -> None:
    """Refuse attributes with too many values for their queries, except `large` ones, which need no matrices.

    Every query leaves something on each of its attributes alone, and what is left on one attribute is one
    block. If it looks the same from every value, or has few queries, many values are no obstacle.
    """
    for index, attribute in enumerate(workload.schema):
        if index in large or attribute.size <= limits().axis_values:
            continue
        parts = (part for group in workload for part in group.parts())
        families = list({f.key: f for names, f in parts if names == (attribute.name,)}.values())
        closed = [f for f in families if f.closed_form]
        rows = sum(f.rows for f in families if not f.closed_form)
        if not closed and is_few(rows, attribute.size, 1):
            continue
        alike = not rows and all(f.looks_alike for f in closed)
        allowed = limits().closed_form_values if alike else limits().axis_values
        if attribute.size > allowed:
            most = limits().most_values
            msg = (
                f"workload: {attribute.name!r} has {attribute.size:,} values; its queries "
                f"({', '.join(sorted({str(f) for f in families}))}) can be planned up to "
                f"{allowed if attribute.size <= most else most:,}. Remedies: "
                f"coarser values or bins for {attribute.name!r}; a few single queries about it"
            )
            if attribute.size <= most:
                msg += (
                    f"; marginals or circular ranges alone, up to {limits().closed_form_values:,}; the "
                    f"default mechanism and solver, without exact counts by it, up to {most:,}"
                )
            raise TooLargeError(msg)


def check_scales(workload: Workload) -> None:
    """Refuse queries whose weighted squares would overflow or vanish."""
    families = {family.key: family for group in workload for family in group.families}
    squares = {key: _squares(family) for key, family in families.items()}
    for group in workload:
        ends = (squares[family.key] for family in group.families)
        least, most = map(math.prod, zip((group.weight, group.weight), *ends, strict=True))
        if not (least >= SAFE and most <= 1 / SAFE):
            raise PlanError(
                f"workload: on ({', '.join(group.attributes)}) weight × (length of a query)² ranges from "
                f"{least:.1e} to {most:.1e}; double precision allows {SAFE:g} to {1 / SAFE:g}"
            )


def _squares(family: Family) -> tuple[float, float]:
    """Return bounds on the weighted squared lengths of the family's nonzero queries."""
    if family.closed_form or family.structure is Structure.TREE or family.spans() is not None:
        weights = np.ones(1) if family.weights is None else family.weights
        return float(weights.min()), float(weights.max()) * family.cells
    rows = lengths(family.matrix())
    squares = rows**2 * (1.0 if family.weights is None else family.weights)
    squares = squares[rows > 0]
    return (float(squares.min()), float(squares.max())) if squares.size else (1.0, 1.0)


def nothing_in(workload: Workload, unit: Unit, which: str = "all its queries") -> PlanError | None:
    """Return an error if all queries are zero, or ask only for the number of records and that is public."""
    asks = [[_distinctions(family) for family in group.families] for group in workload]
    some = [any(varied for _, varied in families) for families in asks if all(some for some, _ in families)]
    nothing = not (any(some) if unit.total_is_public else some)
    return nothing_to_measure(which, public=bool(some)) if nothing else None


def _distinctions(family: Family) -> tuple[bool, bool]:
    """Return whether some query of a family is not zero, and whether one distinguishes values."""
    if family.structure is not Structure.ROWS or family.spans() is not None:
        return True, family.cells > 1 and not is_total(family)
    rows = family.matrix()
    return bool(rows.any()), bool(np.ptp(rows, axis=1).any())


def nothing_to_measure(which: str = "all its queries", *, public: bool = False) -> PlanError:
    """Return an error that says that queries are zero, or ask only for what is public."""
    why = "follow from what these neighbours make public (the number of records, and exact counts)"
    why = why if public else "are zero"
    return PlanError(f"workload: {which} {why}, so there is nothing to measure")
