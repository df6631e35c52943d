"""Which reconstruction suits what a release measured: split, whole, both, or with large attributes."""

from __future__ import annotations

from querysmasher.planning.centre import Centres
from querysmasher.planning.combination import CombinedPredictor
from querysmasher.planning.large.predictor import LargePredictor
from querysmasher.planning.prediction import Predictor
from querysmasher.planning.wholes import WholesPredictor
from querysmasher.privacy.integer_plan import IntegerPlan
from querysmasher.release.large import LargeReconstruction
from querysmasher.release.reconstruction import (
    CombinedReconstruction,
    Reconstruction,
    WholeReconstruction,
    WholesReconstruction,
)
from querysmasher.release.store import Store


def new_reconstruction(
    plan: IntegerPlan, centres: Centres, store: Store, public_total: int | None, predictor: Predictor
) -> Reconstruction:
    """Return what reconstructs marginals from these measurements."""
    if isinstance(predictor, LargePredictor):
        return LargeReconstruction(plan, centres, store, public_total, predictor)
    if isinstance(predictor, CombinedPredictor):
        return CombinedReconstruction(plan, centres, store, public_total, predictor)
    if isinstance(predictor, WholesPredictor):
        return WholesReconstruction(plan, centres, store, public_total, predictor)
    kind = WholeReconstruction if predictor.whole else Reconstruction
    return kind(plan, centres, store, public_total)
