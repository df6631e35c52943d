"""A ledger that several files of tests charge."""

import pytest

import querysmasher as qs


@pytest.fixture
def path(tmp_path):
    """Where a ledger may stand."""
    return tmp_path / "people.ledger"


@pytest.fixture
def ledger(path):
    return qs.Ledger(path, limit=qs.PrivacyCost(1.0))
