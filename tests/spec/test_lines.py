"""Lines of keys, in all the ways TOML lets people write them."""

import pytest

from querysmasher.spec.findings import line_of

TEXT = """\
codebook = "x"
"workload" = 3
[[schema]]
name = "a"
[[ schema ]]  # second
name = "b"
values = [
[1],
]
[[workload]]
kind = "x"
[workload.families]
a = "prefix"
[[workload]]
families.a = 3
[budget]
'rho' = 1
"""


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (("codebook",), 1),
        (("schema", 0), 3),
        (("schema", 0, "name"), 4),
        (("schema", 1), 5),
        (("schema", 1, "name"), 6),
        (("schema", 1, "values"), 7),
        (("schema", 1, "kind"), 5),
        (("schema", 2), None),
        (("workload", 0, "families", "a"), 12),
        (("workload", 1, "families", "a"), 15),
        (("budget", "rho"), 17),
        (("budget",), 16),
        (("output",), None),
        ((), None),
    ],
)
def test_lines(place, line):
    assert line_of(TEXT, place) == line
    assert line_of("", place) is None
