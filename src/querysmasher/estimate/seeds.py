"""Seeds of what is drawn at random after the noise: it protects nobody, so any good generator will do."""

from __future__ import annotations

import secrets

from querysmasher.errors import WorkloadError, as_given


def drawn_seed(seed: int | None) -> int:
    """Return the seed, or one drawn at random if there is none."""
    if seed is None:
        return secrets.randbits(62)
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**62:
        msg = f"seed: expected an integer from 0 to 2^62 - 1, or None, got {as_given(seed)}"
        raise WorkloadError(msg)
    return seed
