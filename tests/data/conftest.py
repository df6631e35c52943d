from __future__ import annotations

import pytest

from tests.data import mixed_table


@pytest.fixture(params=[*mixed_table.IN_MEMORY, *mixed_table.ON_DISK, "spark_frame"])
def engine(request, tmp_path):
    """A function from records to one of the forms of table that we read."""
    name = request.param
    if name in mixed_table.IN_MEMORY:
        return mixed_table.IN_MEMORY[name]
    if name in mixed_table.ON_DISK:
        return lambda rows: mixed_table.ON_DISK[name](rows, tmp_path)
    session = request.getfixturevalue("spark")
    return lambda rows: mixed_table.spark_frame(rows, session)
