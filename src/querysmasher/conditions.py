"""Reads predicates over values into masks over cells, and explains what is wrong with an unreadable one.

A name is plain if Python reads it as one name, and in brackets otherwise. Every shell preserves brackets
inside single and double quotes, whereas backticks would run a command:
`querysmasher answer out "[hours-per-week] >= 40"`. A closing bracket in a name is written twice.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from datetime import date
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from querysmasher.attributes import Attribute, literal
from querysmasher.errors import PredicateError, SchemaError, UnknownAttributeError, as_given, nearest
from querysmasher.formatting import written_name

_TEXT = r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\""""
_LIST = r"\bin\s*\["  # what is in these brackets is a list of values
TOKEN = re.compile(rf"{_TEXT}|{_LIST}|`(?P<ticks>[^`]*)`|\[(?P<name>(?:[^\]]|\]\])*)\]")
"""A string, the start of a list, or a name in backticks or brackets."""

OPERATORS = ("and", "or", "not", "in", "is")


def _is_value(text: str | ast.expr) -> bool:
    """Return whether a string or an expression is a value, or a list of values."""
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False
    return True


_SIGNS = {
    "&&": "and",
    "&": "and",
    "||": "or",
    "|": "or",
    "!": "not",
    "~": "not",
    "=": "==",
    "<>": "!=",
    "=>": ">=",
    "=<": "<=",
}
"""Signs of other languages, and what predicates write instead."""

_CLOSING = {"(": ")", "[": "]"}

_MISTAKE = re.compile(
    rf"(?P<kept>{TOKEN.pattern}|[<>!=:]=(?!=))"
    r"|(?P<date>(?<![\w-])\d{4}-\d\d-\d\d(?![\w-]))"
    r"|(?P<between>(?P<what>[^\W\d]\w*)\s+between\s+(?P<low>\S+)\s+and\s+(?P<high>[^\s()]+))"
    r"|(?P<is>\bis\b(?P<is_not>\s+not\b)?)"
    r"|(?P<sign>&&?|\|\|?|<>|=>|=<|=|!|~)"
    r"|(?P<word>[^\W\d]\w*)"
    r"|(?P<open>[(\['\"`])|(?P<close>[)\]])",
    re.IGNORECASE,
)


def _mended(text: str, known: Collection[str]) -> tuple[list[str], list[str], str]:
    """Return the mistakes in a predicate, in words, further guesses, and the corrected text.

    A guess is a mistake only if the corrected text can be read.
    """
    problems: list[str] = []
    guesses: list[str] = []
    opened: list[str] = []

    def instead(given: str, meant: str) -> str:
        problems.append(f"{given!r} is written {meant!r}")
        return f" {meant} "

    def word(given: str) -> str:
        if given in known or given in OPERATORS:
            return given
        if given.lower() == "like":
            problems.append("like is not known; list the values, as in region in ['north', 'south']")
        meant = nearest(given, [operator for operator in OPERATORS if operator != "is"])
        if meant is None:
            return given
        guesses.append(f"{given!r} is written {meant!r}")
        return meant

    def mend(match: re.Match[str]) -> str:
        part = match[0]
        if match["date"]:
            problems.append(f"dates need quotes, as in '{part}'")
            return f"'{part}'"
        if match["between"]:
            return instead("between", f"{match['low']} <= {match['what']} <= {match['high']}")
        if match["is"]:
            return instead("is not", "!=") if match["is_not"] else instead("is", "==")
        if match["sign"]:
            return instead(part, _SIGNS[part])
        if match["word"]:
            return word(part)
        if match["open"] or part.endswith("["):  # also of a list
            opened.append(part[-1])
        if match["close"]:
            if not opened or _CLOSING.get(opened[-1]) != part:
                problems.append(f"a {part} has no opening bracket")
                return ""
            opened.pop()
        return part

    mended = _MISTAKE.sub(mend, text)
    for sign in reversed(opened):
        problems.append(f"a {'' if sign in _CLOSING else 'quotation mark '}{sign} is not closed")
        mended += _CLOSING.get(sign, sign)
    return list(dict.fromkeys(problems)), guesses, " ".join(mended.split()) if mended != text else text


MAX_CELLS = 20_000_000
"""Maximum number of cells of a condition that ties attributes together."""

TOTAL = "total"
"""The predicate that all records satisfy."""

_COMPARE: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
}
_MIRROR = str.maketrans("<>", "><")
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}

Mask = tuple[tuple[int, ...], NDArray[np.bool_]]
"""The indexes of the attributes of a condition, and its truth value in each of their cells."""


def conditions(schema: Iterable[Attribute], predicate: str) -> list[Mask]:
    """Return masks on disjoint attributes whose conjunction is the predicate."""
    attributes = {attribute.name: attribute for attribute in schema}
    if not isinstance(predicate, str) or not predicate.strip():
        raise PredicateError(f"predicate: expected a string such as 'age >= 18', got {as_given(predicate)}")
    if predicate.strip() == TOTAL:
        return []
    try:
        return _Reader(attributes, predicate).conditions()
    except (RecursionError, MemoryError):
        raise PredicateError(f"predicate {predicate[:40] + '…'!r}: it is nested too deeply") from None
    except (PredicateError, UnknownAttributeError) as error:
        for name in sorted(attributes, key=len, reverse=True):
            # without brackets, these may be intended as numbers and operators
            readable = name in OPERATORS or not any(map(str.isalpha, name)) or _is_value(name)
            if written_name(name) == name or readable:
                continue
            bare = re.compile(rf"({TOKEN.pattern})|(?<!\w){re.escape(name)}(?!\w)")
            match = next((match for match in bare.finditer(predicate) if match[1] is None), None)
            if match is not None:
                mended = predicate[: match.start()] + written_name(name) + predicate[match.end() :]
                msg = f"predicate {predicate!r}: the name {name!r} needs brackets: {mended}"
                raise PredicateError(msg) from None
        problems, guesses, mended = _mended(predicate, attributes)
        is_known = not isinstance(error, UnknownAttributeError)
        with suppress(PredicateError, UnknownAttributeError, RecursionError, MemoryError):
            if mended != predicate:
                _Reader(attributes, mended).conditions()
                problems, is_known = [*problems, *guesses, f"write {mended}"], True
        if problems and is_known:
            raise PredicateError(f"predicate {predicate!r}: {'; '.join(problems)}") from None
        raise


def any_possible(schema: Iterable[Attribute], predicates: Sequence[str]) -> bool:
    """Return whether a record can satisfy none of the predicates; true if that takes too many cells."""
    with suppress(PredicateError):
        masks = conditions(schema, " or ".join(f"({predicate})" for predicate in predicates))
        return not all(mask.all() for _, mask in masks)
    return True


class _Reader:
    """Parses a predicate into masks over cells."""

    def __init__(self, attributes: dict[str, Attribute], text: str) -> None:
        self.attributes = attributes
        self.text = text
        self.positions = {name: position for position, name in enumerate(attributes)}
        self.sizes = [attribute.size for attribute in attributes.values()]
        self.first = next(iter(attributes.values()))
        self.quoted: dict[str, str] = {}
        """The names in brackets or backticks, by the identifiers that replace them."""
        self.stem = "quoted_"
        while self.stem in text:
            self.stem += "_"
        try:
            self.tree = ast.parse(TOKEN.sub(self.unquoted, text).strip(), mode="eval").body
        except (SyntaxError, ValueError):
            raise self.error(f"it cannot be read; write a condition {self.example()}") from None

    def unquoted(self, match: re.Match[str]) -> str:
        """Return an identifier for a quoted name; strings, lists and values in brackets are unchanged."""
        name = match["ticks"]
        if match["name"] is not None:
            name = match["name"].replace("]]", "]")
            if name not in self.attributes and name.strip() in self.attributes:
                name = name.strip()
        if name is None or (
            match["name"] is not None and name not in self.attributes and _is_value(match[0])
        ):
            return match[0]
        short = f"{self.stem}{len(self.quoted)}_"
        self.quoted[short] = name
        return f" {short} "

    def error(self, why: str) -> PredicateError:
        for short, name in self.quoted.items():
            why = why.replace(short, written_name(name))
        return PredicateError(f"predicate {self.text!r}: {why}")

    def example(self) -> str:
        """Return a condition that can be read."""
        return f"such as {self.first.exactly(written_name(self.first.name), 0)}"

    def conditions(self) -> list[Mask]:
        """Return masks on disjoint attributes whose conjunction is the predicate."""
        tree = self.tree
        parts = tree.values if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And) else [tree]
        separate: list[Mask] = []
        for part in parts:
            merged = self.mask(part)
            touching = [m for m in separate if set(m[0]) & set(merged[0])]
            separate = [m for m in separate if not set(m[0]) & set(merged[0])]
            for other in touching:
                merged = self.join(np.logical_and, merged, other)
            separate.append(merged)
        return sorted(separate, key=lambda m: m[0])

    def mask(self, node: ast.expr) -> Mask:
        if isinstance(node, ast.BoolOp):
            combine = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
            return reduce(partial(self.join, combine), map(self.mask, node.values))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            axes, mask = self.mask(node.operand)
            return axes, ~mask
        if isinstance(node, ast.Compare):
            steps = map(self.compare, [node.left, *node.comparators], node.ops, node.comparators)
            return reduce(partial(self.join, np.logical_and), steps)
        raise self.error(
            f"{ast.unparse(node)!r} is not a condition; compare an attribute with a value, {self.example()}"
        )

    def join(self, combine: Callable[[Any, Any], Any], a: Mask, b: Mask) -> Mask:
        axes = tuple(sorted({*a[0], *b[0]}))
        cells = math.prod(self.sizes[axis] for axis in axes)
        if cells > MAX_CELLS:
            raise self.error(
                f"a condition ties {len(axes)} attributes together over {cells:,} cells; at most "
                f"{MAX_CELLS:,} can be held (conditions joined by a top-level 'and' are not tied)"
            )
        spread = (
            mask.reshape([self.sizes[axis] if axis in axes_of else 1 for axis in axes])
            for axes_of, mask in (a, b)
        )
        return axes, combine(*spread)

    def compare(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Mask:
        attribute = self.attribute(left)
        if isinstance(op, ast.In | ast.NotIn):
            if attribute is None or not isinstance(right, ast.List | ast.Tuple | ast.Set):
                example = attribute or self.first
                listed = f"{written_name(example.name)} in [{', '.join(example.literals[:2])}]"
                raise self.error(
                    f"'in' needs an attribute on its left and a list of values on its right, as in {listed}"
                )
            inside = np.zeros(attribute.size, dtype=bool)
            for item in right.elts:
                inside[self.value_position(attribute, self.constant(item))] = True
            return (self.positions[attribute.name],), inside ^ isinstance(op, ast.NotIn)
        if type(op) not in _COMPARE:
            raise self.error(f"{ast.unparse(left)} … : only < <= > >= == != in are known")
        sign, apply = _COMPARE[type(op)]
        bare = right.id if isinstance(right, ast.Name) and right.id not in self.attributes else None
        if attribute is not None and bare is not None and nearest(bare, self.attributes) is None:
            strings = [v for v in attribute.values if isinstance(v, str)]
            near = bare if bare in strings else nearest(bare, strings)
            if near is not None:
                raise self.error(f"strings need quotes, as in {written_name(attribute.name)} {sign} {near!r}")
        other = self.attribute(right)
        if attribute is not None and other is None and _is_value(right):
            return self.against_value(attribute, sign, self.constant(right))
        if other is not None and attribute is None and _is_value(left):
            return self.against_value(other, sign.translate(_MIRROR), self.constant(left))
        axes, mask = self.join(apply, self.number(left), self.number(right))
        if not axes:
            raise self.error(f"{ast.unparse(left)!r} and {ast.unparse(right)!r} name no attribute")
        return axes, mask

    def attribute(self, node: ast.expr) -> Attribute | None:
        if not isinstance(node, ast.Name):
            return None
        name = self.quoted.get(node.id, node.id)
        if name not in self.attributes:
            raise UnknownAttributeError(name, self.attributes)
        return self.attributes[name]

    def constant(self, node: ast.expr) -> Any:
        value = ast.literal_eval(node) if _is_value(node) else None
        if not isinstance(value, str | int | float | bool):
            raise self.error(f"{ast.unparse(node)!r} is not a value (strings need quotes)")
        return value

    def date(self, attribute: Attribute, value: Any) -> Any:
        """Return the date of an ISO string for an attribute of dates; other values unchanged."""
        dates = any(isinstance(v, date) for v in attribute.values[: attribute.listed])
        if not dates or not isinstance(value, str) or value in attribute.values:
            return value
        with suppress(ValueError):
            if _ISO_DATE.fullmatch(value):  # Python accepts further notations
                return date.fromisoformat(value)
        raise self.error(f"{value!r} is not a date; write it as in '2024-03-01'")

    def value_position(self, attribute: Attribute, value: Any) -> int:
        try:
            return attribute.position(self.date(attribute, value))
        except SchemaError as error:
            raise self.error(str(error)) from None

    def against_value(self, attribute: Attribute, sign: str, value: Any) -> Mask:
        axes, cells = (self.positions[attribute.name],), np.arange(attribute.size)
        apply = next(f for s, f in _COMPARE.values() if s == sign)
        example = attribute.exactly(written_name(attribute.name), 0)
        binned = attribute.edges is not None and not isinstance(value, str)
        if sign in ("==", "!="):
            if binned:
                raise self.error(
                    f"{attribute.name!r} is binned: a bin is given by its edges, as in {example}"
                )
            return axes, apply(cells, self.value_position(attribute, value))
        if not attribute.ordered:
            raise self.error(
                f"{attribute.name!r} is categorical, so {sign} is not defined; use == or in, as in {example}"
            )
        if binned:
            edge = self.edge_position(attribute, sign, value)
            return axes, self.in_order(attribute, apply(cells[: attribute.listed], edge))
        value, values = self.date(attribute, value), attribute.values[: attribute.listed]
        kinds = {type(v) if isinstance(v, str | date) else float for v in (*values, value)}
        increasing = len(kinds) == 1 and all(map(operator.lt, values, values[1:]))
        if increasing and str not in kinds:
            cells, position = np.array(values), value
        else:
            position = self.value_position(attribute, value)
            if position >= attribute.listed:
                raise self.error(
                    f"{literal(value)} has no place in the order of {attribute.name!r}; use == or in"
                )
        return axes, self.in_order(attribute, apply(cells[: attribute.listed], position))

    @staticmethod
    def in_order(attribute: Attribute, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return a mask over all values from one over those in order; none beside these satisfies it."""
        return np.append(mask, np.zeros(len(attribute.beside), dtype=bool))

    def edge_position(self, attribute: Attribute, sign: str, value: float) -> int:
        """Return the bin that starts at `value`; bins cannot be split; the last contains its right edge."""
        edges = list(attribute.edges or ())
        if value in edges[:-1] and sign in ("<", ">="):
            return edges.index(value)
        if value == edges[-1] and sign in ("<=", ">"):
            return len(edges) - 1
        inner = [edge for edge in edges[:-1] if math.isfinite(edge)]
        last = f", or <= or > with its last edge {edges[-1]}" if math.isfinite(edges[-1]) else ""
        raise self.error(
            f"{attribute.name!r} is binned: use < or >= with one of its edges {inner}{last}, so that no bin "
            "is split"
        )

    def number(self, node: ast.expr) -> tuple[tuple[int, ...], NDArray[Any]]:
        """Return the value of an arithmetic expression in every cell of its attributes."""
        attribute = self.attribute(node)
        if attribute is not None:
            values = attribute.values[: attribute.listed]
            if any(isinstance(v, str | date) for v in values):
                raise self.error(f"{attribute.name!r} has values that are not numbers")
            beside = np.full(len(attribute.beside), np.nan)  # neither below nor above any number
            return (self.positions[attribute.name],), np.append(np.array(values, dtype=float), beside)
        if _is_value(node):
            value = self.constant(node)
            if isinstance(value, str):
                raise self.error(f"{value!r} is compared with something other than one attribute")
            try:
                return (), np.array(float(value))
            except OverflowError:
                raise self.error("a number in it is too large") from None
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            return self.join(_ARITHMETIC[type(node.op)], self.number(node.left), self.number(node.right))
        raise self.error(
            f"{ast.unparse(node)!r} is neither an attribute, a value, nor their + - *, {self.example()}"
        )
