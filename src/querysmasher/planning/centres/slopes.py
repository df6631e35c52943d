"""Derivatives of the total error, while they are gathered."""

from __future__ import annotations

from dataclasses import dataclass, field

from querysmasher.arrays import Array
from querysmasher.planning.subworkload import Part


@dataclass(eq=False)
class Slopes:
    """Derivatives of F with respect to the contents of parts and the factors of coefficients."""

    parts: dict[tuple[Part, int], tuple[float, Array]] = field(default_factory=dict)
    """By part and derivative: a weight w and rows U, which stand for w·UᵀU."""
    squares: dict[int, float] = field(default_factory=dict)

    def add_part(self, part: Part, weight: float, derivative: Array) -> None:
        """Add weight × UᵀU to the derivative with respect to a part's Gram."""
        known, _ = self.parts.get((part, id(derivative)), (0.0, derivative))
        self.parts[part, id(derivative)] = (known + weight, derivative)

    def of_part(self, part: Part) -> Array | None:
        """Return the derivative with respect to a part's rows (thin) or Gram."""
        total = None
        for (own, _), (weight, U) in self.parts.items():
            if own == part:
                change = 2 * weight * (part.content @ U.T) @ U if part.thin else weight * U.T @ U
                total = change if total is None else total + change
        return total
