"""The joint covariance of answers."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import TooLargeError
from querysmasher.planning.estimator.estimator import Estimator
from querysmasher.planning.solution import Blocks, Measured
from querysmasher.workload.workload import Workload

MAX_COVARIANCE = 10_000
"""Maximum number of answers."""


def covariance(estimator: Estimator, workload: Workload, other: Workload | None = None) -> Array:
    """Return the covariance matrix of the answers to a small workload, or with those to another one."""
    if other is not None:
        return _between(estimator, workload, other)
    size = workload.query_count
    if size > MAX_COVARIANCE:
        msg = (
            f"workload: a covariance of {size:,} answers is too large; at most {MAX_COVARIANCE:,} are allowed"
        )
        raise TooLargeError(msg)
    images: dict[tuple[tuple[int, ...], Blocks], list[tuple[int, float, Array]]] = {}
    for start, measured, image in _starting(estimator, workload):
        noise = measured.attributes, measured.blocks
        images.setdefault(noise, []).append((start, measured.variance, image))
    result = np.zeros((size, size))
    for own in images.values():
        rows = np.concatenate([np.arange(first, first + len(image)) for first, _, image in own])
        stacked = np.concatenate([image for _, _, image in own])
        result[np.ix_(rows, rows)] += own[0][1] * (stacked @ stacked.T)
    return result


def _between(estimator: Estimator, workload: Workload, other: Workload) -> Array:
    """Return the covariance of the answers to a workload with those to another one, one column each."""
    shape = workload.query_count, other.query_count
    if shape[0] * shape[1] > MAX_COVARIANCE**2:
        msg = f"workload: a covariance of {shape[0]:,} with {shape[1]:,} answers is too large"
        raise TooLargeError(msg)
    theirs = list(_starting(estimator, other))
    only = {measured.attributes for _, measured, _ in theirs}
    result = np.zeros(shape)
    for start, own, image in _starting(estimator, workload, only):
        for column, measured, shared in theirs:
            if (own.attributes, own.blocks) == (measured.attributes, measured.blocks):
                place = slice(start, start + len(image)), slice(column, column + len(shared))
                result[place] += own.variance * (image @ shared.T)
    return result


def _starting(
    estimator: Estimator, workload: Workload, only: Collection[tuple[int, ...]] | None = None
) -> Iterator[tuple[int, Measured, Array]]:
    """Iterate over the images of all groups, each with the index of its first query."""
    start = 0
    for group in workload:
        for measured, image in estimator.images(group, only):
            yield start, measured, image
        start += group.rows
