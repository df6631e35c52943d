"""Which reconstruction suits what a release measured: split, whole, both, or with large attributes."""

from __future__ import annotations

from querysmasher.planning.centre import Centres
from querysmasher.planning.combination import CombinedPredictor
from querysmasher.planning.prediction import Predictor
from querysmasher.planning.whole import WholePredictor
from querysmasher.planning.wholes import WholesPredictor
from querysmasher.privacy.integer_plan import IntegerPlan
from querysmasher.release.reconstruction import (
    CombinedReconstruction,
    Reconstruction,
    WholeReconstruction,
    WholesReconstruction,
)
from querysmasher.release.store import Store

RECONSTRUCTIONS: dict[str, type[Reconstruction]] = {
    Predictor.kind: Reconstruction,
    WholePredictor.kind: WholeReconstruction,
    WholesPredictor.kind: WholesReconstruction,
    CombinedPredictor.kind: CombinedReconstruction,
}
"""What reconstructs marginals, by the kind of what predicts their errors. A new kind needs a line here."""


def new_reconstruction(
    plan: IntegerPlan, centres: Centres, store: Store, public_total: int | None, predictor: Predictor
) -> Reconstruction:
    """Return what reconstructs marginals from these measurements."""
    return RECONSTRUCTIONS[predictor.kind](plan, centres, store, public_total, predictor)
