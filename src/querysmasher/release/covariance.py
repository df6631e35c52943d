"""The joint covariance of answers."""

from __future__ import annotations

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import TooLargeError
from querysmasher.planning.measured import Blocks
from querysmasher.planning.prediction import Predictor
from querysmasher.workload.workload import Workload

MAX_COVARIANCE = 10_000
"""Maximum number of answers."""


def covariance(predictor: Predictor, workload: Workload) -> Array:
    """Return the covariance matrix of the answers to a small workload."""
    size = workload.query_count
    if size > MAX_COVARIANCE:
        msg = (
            f"workload: a covariance of {size:,} answers is too large; at most {MAX_COVARIANCE:,} are allowed"
        )
        raise TooLargeError(msg)
    images: dict[tuple[tuple[int, ...], Blocks], list[tuple[int, float, Array]]] = {}
    start = 0
    for group in workload:
        for measured, image in predictor.images(group):
            noise = measured.attributes, measured.blocks
            images.setdefault(noise, []).append((start, measured.variance, image))
        start += group.rows
    result = np.zeros((size, size))
    for own in images.values():
        rows = np.concatenate([np.arange(first, first + len(image)) for first, _, image in own])
        stacked = np.concatenate([image for _, _, image in own])
        result[np.ix_(rows, rows)] += own[0][1] * (stacked @ stacked.T)
    return result
