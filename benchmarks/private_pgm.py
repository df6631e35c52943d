"""Runs a mechanism of private-pgm on a table: a script for an environment of its own, which has `mbi`.

    python private_pgm.py MECHANISMS {aim,mst} TABLE.csv SIZES.json EPSILON DELTA ORDER SEED ANSWERS.npy

MECHANISMS is the folder `mechanisms` of its repository, TABLE.csv has values coded 0, 1, …, and SIZES.json
the number of values of each column. The script writes the counts of all tables of ORDER columns, one after
the other, and prints the seconds that the mechanism took, of the wall and of the processor. Its settings stay
at their defaults.
"""

import itertools
import json
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd


def main(mechanisms, name, table, sizes, epsilon, delta, order, seed, answers):
    """Measure, and write all tables of the synthetic records."""
    sys.path.insert(0, mechanisms)
    from mbi import Dataset, Domain  # noqa: PLC0415 - of the other environment

    domain = json.loads(Path(sizes).read_text())
    data = Dataset(pd.read_csv(table)[list(domain)], Domain(tuple(domain), tuple(domain.values())))
    tables = list(itertools.combinations(domain, int(order)))
    np.random.seed(int(seed))  # noqa: NPY002 - which is what it draws from
    wall, own = time.perf_counter(), time.process_time()
    if name == "mst":
        from mst import MST  # noqa: PLC0415

        records = MST(data, float(epsilon), float(delta))
    else:
        from aim import AIM  # noqa: PLC0415

        _, records = AIM(float(epsilon), float(delta)).run(data, [(one, 1.0) for one in tables])
    seconds = time.perf_counter() - wall, time.process_time() - own
    counts = [np.asarray(records.project(one).datavector(), dtype=float) for one in tables]
    np.save(answers, np.concatenate(counts))
    sys.stdout.write(f"\n{json.dumps(seconds)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
