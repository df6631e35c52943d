"""What all tests share: reproducible Hypothesis, and a way to say that something must be refused."""

from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, settings

from querysmasher.errors import QuerySmasherError

settings.register_profile(
    "fixed",
    deadline=None,
    derandomize=True,  # the same cases everywhere, so that a failure in CI is a failure here
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("fixed")


@pytest.fixture
def refuses():
    """A context that must raise exactly this error of ours, which must also be that builtin one."""

    @contextmanager
    def context(error, builtin, *words):
        with pytest.raises(QuerySmasherError) as caught:
            yield
        assert type(caught.value) is error
        assert isinstance(caught.value, builtin)
        for word in words:
            assert word in str(caught.value)

    return context
