"""Hierarchies of very many values: strategies on the nodes of their tree."""

from __future__ import annotations

from querysmasher.errors import TooLargeError
from querysmasher.planning.limits import limits
from querysmasher.planning.lines.attributes import is_implicit
from querysmasher.planning.lines.gram import LineGram
from querysmasher.planning.lines.line import LineSolution, whole_loss
from querysmasher.planning.trees.nested import is_nested, nested
from querysmasher.planning.trees.solving import solve_tree


def solve_forest(gram: LineGram, *, always: bool = False) -> LineSolution | None:
    """Return the best strategy that measures nodes, or None if no family is a hierarchy, or not all nest.

    With `always`, single values suffice.

    Other queries, which must be few, do not change the strategy, but count in its loss.
    """
    families = [(family, weight) for family, weight in gram.asked if is_nested(family)]
    if any(is_implicit(family) and not is_nested(family) for family, _ in gram.asked):
        return None  # prefixes and ranges are too many
    if not families or not (always or any(family.is_tree for family, _ in families)):
        return None
    asked = nested([family for family, _ in families], [weight for _, weight in families], gram.total)
    if asked is None:
        msg = (
            f"workload: hierarchies of {gram.size:,} values that do not nest in each other cannot be planned "
            "together. Remedies: one of them by itself; coarser values"
        )
        raise TooLargeError(msg)
    found = solve_tree(asked, limits().forest_gap)
    loss = found.reached**2 if len(families) == len(gram.asked) else whole_loss(gram, found.strategy)
    return LineSolution(found.strategy, loss, min(found.bound**2, loss))
