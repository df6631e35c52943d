"""How Hypothesis draws: the same cases every time, or, to hunt for new ones, others every time."""

import math

from hypothesis import HealthCheck, settings

COMMON = {
    "deadline": None,
    "print_blob": True,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}

settings.register_profile("fixed", derandomize=True, max_examples=20, **COMMON)  # in CI as here
settings.register_profile("quick", derandomize=True, max_examples=10, **COMMON)
settings.register_profile("fuzz", derandomize=False, max_examples=500, **COMMON)


def fewer(examples):
    """Draw so many cases instead of a hundred, and in proportion to the others when hunting for new ones."""
    return settings(max_examples=math.ceil(examples * settings.default.max_examples / 100))
