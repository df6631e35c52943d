"""Minimise a smooth function of many variables by a limited-memory quasi-Newton method (L-BFGS).

Nocedal and Wright, Numerical Optimization: algorithms 7.4 and 7.5 for the direction, 3.5 and 3.6 for a step
that meets the strong Wolfe conditions. Loading `scipy.optimize` for it would take longer than a small plan.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.limits import limits

Objective = Callable[[Array], tuple[float, Array]]
"""Maps a point to the value and the gradient there."""

MEMORY = 10
"""Number of past steps from which the curvature is estimated."""

DECREASE, CURVATURE = 1e-3, 0.9
"""The Wolfe conditions: minimum decrease and maximum final slope, as fractions of the slope at the start."""

LITTLE = 20
"""A stuck search has converged if the estimated curvature promises at most this many times `gain`."""

STRETCH = 4.0
"""Factor by which the search extends a step that still descends steeply."""

NARROW = 0.1
"""Width of an interval, relative to its end, at which the search accepts its low point."""

MARGIN = 0.1
"""Minimum distance of a trial from the ends of its interval, as a fraction of the interval."""


@dataclass(frozen=True)
class Minimum:
    """The result of a search."""

    x: Array
    value: float
    """The value at `x`."""
    success: bool
    """Whether the search converged, rather than ran out of steps or got stuck."""
    steps: int


@dataclass(frozen=True)
class _Point:
    """A point on a line: how far along, value, slope, and the point itself with its gradient."""

    step: float
    value: float
    slope: float
    x: Array
    gradient: Array


def minimize(
    objective: Objective, start: Array, *, steps: int, gain: float, gradient: float = 1e-5
) -> Minimum:
    """Search for a minimum, downhill from `start`.

    The search ends when a step gains less than `gain`, relative to the value or to 1, whichever is larger, or
    when no entry of the gradient exceeds `gradient`. It fails after `steps` steps, or if it
    is stuck far from the minimum.
    The first trial lies at distance one from `start`.
    """
    x = np.array(start, dtype=float)
    value, slope = objective(x)
    past: deque[tuple[Array, Array]] = deque(maxlen=MEMORY)
    for done in range(steps):
        if np.abs(slope).max(initial=0.0) <= gradient:
            return Minimum(x, value, True, done)
        found = _next(objective, x, value, slope, past)
        if found is None and past:
            promised = float(slope @ _inverse_hessian_times(slope, past)) / 2
            if promised <= LITTLE * gain * max(abs(value), 1.0):
                return Minimum(x, value, True, done)
            past.clear()  # the estimated curvature misleads
            found = _next(objective, x, value, slope, past)
        if found is None:
            return Minimum(x, value, False, done)
        move, bend = found.x - x, found.gradient - slope
        if move @ bend > np.finfo(float).eps * float(bend @ bend) > 0:
            past.append((move, bend))
        before, x, value, slope = value, found.x, found.value, found.gradient
        if before - value <= gain * max(abs(before), abs(value), 1.0):
            return Minimum(x, value, True, done + 1)
    return Minimum(x, value, bool(np.abs(slope).max(initial=0.0) <= gradient), steps)


def _next(
    objective: Objective, x: Array, value: float, gradient: Array, past: deque[tuple[Array, Array]]
) -> _Point | None:
    """Return a lower point in the direction that the curvature of past steps suggests, or None."""
    direction = -_inverse_hessian_times(gradient, past)
    slope = float(direction @ gradient)
    if not slope < 0:  # also if its square is zero in double precision
        return None
    step = 1.0 if past else 1 / float(np.linalg.norm(direction))
    return _search_line(objective, _Point(0.0, value, slope, x, gradient), direction, step)


def _inverse_hessian_times(vector: Array, past: deque[tuple[Array, Array]]) -> Array:
    """Return the product of an estimate of the inverse Hessian with a vector, by the two-loop recursion."""
    result = vector.copy()
    parts = []
    for move, bend in reversed(past):
        part = float(move @ result) / float(move @ bend)
        result -= part * bend
        parts.append(part)
    if past:
        move, bend = past[-1]
        result *= float(move @ bend) / float(bend @ bend)
    for (move, bend), part in zip(past, reversed(parts), strict=True):
        result += (part - float(bend @ result) / float(move @ bend)) * move
    return result


def _search_line(objective: Objective, start: _Point, direction: Array, step: float) -> _Point | None:
    """Return a point that meets the strong Wolfe conditions; after too many trials, a lower one or None."""

    def at(step: float) -> _Point:
        x = start.x + step * direction
        value, gradient = objective(x)
        return _Point(step, value, float(gradient @ direction), x, gradient)

    def is_low(point: _Point) -> bool:
        return point.value <= start.value + DECREASE * point.step * start.slope

    low, high = start, None
    for _ in range(limits().line_trials):
        point = at(step)
        if not (is_low(point) and point.value <= low.value):  # also if the value is NaN
            high = point
        elif abs(point.slope) <= CURVATURE * -start.slope:
            return point
        else:
            if point.slope * (point.step - low.step if high is None else high.step - low.step) >= 0:
                high = low
            low = point
        if high is None:
            step = low.step * STRETCH
        elif abs(high.step - low.step) <= NARROW * max(high.step, low.step):
            break
        else:
            step = _between(low, high, was_low=point is low)
    return low if low.value < start.value else None


def _between(low: _Point, high: _Point, *, was_low: bool) -> float:
    """Return a trial step between two others, away from both.

    It is the minimum of the cubic through both values and slopes, or a simpler guess. After a high point, the
    guess is halfway from this minimum to that of the parabola without the high point's slope, if it is nearer
    to the low point. After a low point, it is the zero of the line through both slopes, if it is farther.
    """
    width = high.step - low.step
    guess = low.step + width / 2
    if math.isfinite(high.value) and math.isfinite(high.slope):
        rise = (high.value - low.value) / width
        mean = low.slope + high.slope - 3 * rise
        under = mean * mean - low.slope * high.slope
        if under >= 0:
            root = math.copysign(math.sqrt(under), width)
            below = high.slope - low.slope + 2 * root
            if below != 0:
                guess = high.step - width * (high.slope + root - mean) / below
        if was_low and low.slope * high.slope < 0:
            other = low.step + low.slope / (low.slope - high.slope) * width
            guess = max(guess, other, key=lambda step: abs(step - low.step))
        elif not was_low and rise != low.slope:
            other = low.step + low.slope / (low.slope - rise) * width / 2
            guess = min(guess, (guess + other) / 2, key=lambda step: abs(step - low.step))
    nearest, farthest = sorted((low.step + MARGIN * width, high.step - MARGIN * width))
    return min(max(guess, nearest), farthest)
