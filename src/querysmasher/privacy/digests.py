"""Digests of integer plans, which anyone can recompute from a published release.

A digest is the SHA-256 of a canonical text: JSON with sorted keys, no spaces and ASCII characters only, in
which an array is replaced by the SHA-256 of its entries (little-endian, row by row), its type and its shape.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from querysmasher.privacy.integer_plan import IntegerPlan


def canonical(data: Any) -> str:
    """Return plain data as the one JSON text that represents it; arrays are represented by their digest."""
    return json.dumps(_plain(data), sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest(text: str) -> str:
    """Return the SHA-256 of a string in UTF-8, in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def plan_digest(plan: IntegerPlan) -> str:
    """Return the digest of everything that a plan measures: domain, budget, integer rows, variances, cap."""
    return digest(
        canonical(
            {
                "schema": plan.schema.to_json(),
                "budget": plan.budget.to_json(),
                "max_records": plan.max_records,
                "strategies": [
                    {
                        "shape": s.shape,
                        "factors": [[axes, factor.kind, factor.to_data()] for axes, factor in s.factors],
                        "multipliers": s.multipliers,
                    }
                    for s in plan.strategies
                ],
                "measured": [[m.attributes, m.blocks, str(m.variance)] for m in plan.measured],
            }
        )
    )


def _plain(data: Any) -> Any:
    if isinstance(data, np.ndarray):
        little = np.ascontiguousarray(data).astype(data.dtype.newbyteorder("<"), copy=False)
        whole = hashlib.sha256(little.tobytes()).hexdigest()
        return {"dtype": little.dtype.newbyteorder("<").str, "shape": list(data.shape), "sha256": whole}
    if isinstance(data, Mapping):
        return {str(key): _plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_plain(one) for one in data]
    return data
