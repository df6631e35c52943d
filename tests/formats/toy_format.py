"""A toy format, as a new one would be written: values separated by tabs, in a file of its own."""

import json
from contextlib import contextmanager

from querysmasher.formats.tabular import Format, plain_rows
from querysmasher.formatting import cell


@contextmanager
def write_tabs(path, schema, about):
    with path.open("w", encoding="utf-8") as stream:
        stream.write("\t".join(schema.names) + "\n")

        def write(table):
            for row in plain_rows(table):
                stream.write("\t".join(json.dumps(row[name]) for name in schema.names) + "\n")

        yield write, {}


def read_tabs(path):
    header, *lines = path.read_text(encoding="utf-8").splitlines()
    rows = [[json.loads(text) for text in line.split("\t")] for line in lines]
    return dict(zip(header.split("\t"), map(list, zip(*rows, strict=True)), strict=True)), {}


TABS = Format((".tabs",), "tabs", "text/tab-separated-values", write_tabs, read_tabs, safe=cell)
