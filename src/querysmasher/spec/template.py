"""A first spec file, which is valid as it is."""

from __future__ import annotations

import json

_HEAD = """\
# What to publish, under which budget. Everything in this file is public knowledge: never look at the
# data to write it. Check it with `querysmasher plan`, which needs no data, then run `querysmasher release`.
"""

_CODEBOOK = """
# The attributes and their possible values, from a codebook.
codebook = {codebook}
"""

_SCHEMA = """
# The attributes, one [[schema]] table each. Values that are not listed are refused.
# (Or write `codebook = "codebook.csv"` here instead: a CSV with the columns attribute, kind, values.)

[[schema]]
name = "sex"
kind = "categorical"              # values without an order
values = ["F", "M"]               # strings, numbers or dates; `missing` names one for missing values

[[schema]]
name = "age"
kind = "ordinal"                  # values with an order
range = [0, 99]                   # first and last value, both included; a third number is the step

[[schema]]
name = "income"
kind = "binned"                   # a number in bins: 5 edges define 4 bins
edges = [0, 10000, 25000, 50000, 100000]

[[schema]]
name = "hour"
kind = "cyclic"                   # values on a circle: hour of the day, month of birth
range = [0, 23]
"""

_WORKLOAD = """
# The queries, one [[workload]] table each. `weight` is their importance; the default is 1.

[[workload]]
kind = "all_kway"                 # on all sets of 1 and 2 attributes: identity queries on
k = [1, 2]                        # categorical attributes, prefix queries on ordered ones
weighting = "tables"              # every table counts alike; with "queries", large tables outweigh totals
# target = 50                     # every standard error at most 50; with level = 0.95, every interval ± 50
"""

_MORE = """
[[workload]]
kind = "where"                    # single counts
predicate = ["age >= 18 and sex == 'F'", "18 <= age < 65"]
weight = 2.0

# [[workload]]
# kind = "marginals"              # counts per combination of values
# k = 3

# [[workload]]
# kind = "queries"                # one product of families: identity, prefix, range, circular, custom rows
# families = {age = "range", sex = "identity"}
"""

_TAIL = """
[budget]
epsilon = 1.0                     # epsilon and delta; or rho (zCDP); or mu (Gaussian DP); or cost
delta = 1e-6
neighbours = "add_remove"         # or "replace_one", which makes the number of records public
# least = true                    # instead: the least budget that meets all targets
records_per_person = 1            # above 1 the guarantee protects persons, not single records
# ledger = {path = "people.ledger", rho = 1.0}   # records what is spent, up to this limit

# [plan]
# objective = "worst"             # the least largest error instead of the least mean error
# purpose = "estimate"            # measure what release.estimate() uses best: marginals of sparse tables

[data]                            # only `querysmasher release` reads it
path = "people.csv"               # CSV or Parquet; or database = "people.duckdb" and table = "people"
# delimiter = ";"                 # the dialect of a CSV file is stated, never inferred from the records;
# decimal = ","                   # also quote (default '"') and encoding (default "utf-8")

[measure]
unknown = "refuse"                # what to do with values outside the schema; or "drop" such records
max_records = 100000000           # a public cap on the number of records
# person = "household_id"         # count at most records_per_person records of each value of this column
# report_dropped = true           # measure how many records were left out, with 1% of the budget

[output]
folder = "out"
answers = "parquet"               # format of the answers, such as csv or xlsx; "none" for no file
# level = 0.95                    # of the intervals
# thresholds = [0.1, 0.2, 0.3]    # coefficients of variation at which answers are flagged
# suppress = 0.3                  # leaves out answers above this one, which biases those that remain

# [estimate]                      # estimates beside the answers: non-negative and shrunk, not unbiased
# answers = "csv"                 # their format, if it differs
# error_share = 0.02              # of the budget, which measures their errors; by default only `explore` does

# [about]                         # words for readers, in every file
# title = "Counts of our members"
# organisation = "Example Institute"
# contact = "counts@example.org"
# data = "register of members, 2024"
# version = "1.0"
# date = 2024-03-01               # of the release; by default today
"""


def template(codebook: str | None = None) -> str:
    """Return the text of a first spec file, with example attributes or with those of a codebook."""
    if codebook is None:
        return _HEAD + _SCHEMA + _WORKLOAD + _MORE + _TAIL
    return _HEAD + _CODEBOOK.format(codebook=json.dumps(codebook)) + _WORKLOAD + _TAIL
