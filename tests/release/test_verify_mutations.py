"""`verify` never passes a file that was changed, whatever the change, with sizes and digests put right.

Mutations know the structure of a file: they change values, types, keys, cells, metadata, members, markup, and
single bytes. A mutated file passes only if it has the same content: the same members, however compressed, and
the same numbers but for rounding.

`python -m tests.release.test_verify_mutations 1000` tries that many of each file, always the same ones, and
prints how many were found.
"""

import csv
import gzip
import hashlib
import io
import json
import math
import re
import sys
import tempfile
import zipfile
import zlib
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from pyarrow import csv as arrow_csv

import querysmasher as qs
from querysmasher.files import write_members
from querysmasher.formats import endings as formats_by_ending
from querysmasher.release import verify as verify_module
from querysmasher.release.verify import OK
from querysmasher.release.writing import document
from tests.release.folders import TABLE, planned, published, summarised

COUNT = 20
"""Mutations of each file."""

WORDS = [
    '"',
    "0.001",
    "-1",
    "null",
    "true",
    "01",
    "ε",
    ",",
    "\n",
    "<script>1</script>",
    "NaN",
    "{}",
    " ",
    "\x00",
]


def of_bytes(data, random):
    """One bit, byte or slice."""
    at, end = sorted(random.integers(0, len(data) + 1, 2).tolist())
    some = data[at : min(end, at + 20)]
    return [
        lambda: data[:at] + bytes([data[at] ^ (1 << int(random.integers(8)))]) + data[at + 1 :],
        lambda: data[:at] + random.bytes(int(random.integers(1, 9))) + data[at:],
        lambda: data[:at] + data[at + len(some) :],
        lambda: data[:at] + some + data[at:],
        lambda: data[:at],
        lambda: data + random.bytes(3),
        lambda: b"\xef\xbb\xbf" + data,
    ][0 if at < len(data) and random.random() < 0.5 else int(random.integers(1, 7))]()


def of_text(data, random):
    """A digit, a word, a line or a piece of markup."""
    text = data.decode()
    starts = [int(start) for start in random.integers(len(text), size=2)]
    patterns = [re.compile(r"\d"), re.compile(r"[<>{}\[\],\"\n]")]
    at, edge = ((p.search(text, s) or p.search(text)).start() for p, s in zip(patterns, starts, strict=True))
    return [
        lambda: text[:at] + str((int(text[at]) + int(random.integers(1, 10))) % 10) + text[at + 1 :],
        lambda: text[:at] + "0" + text[at:],
        lambda: text[:edge] + str(random.choice(WORDS)) + text[edge:],
        lambda: text.replace("\n", str(random.choice(["\r\n", "\n\n", "\n "])), int(random.integers(1, 4))),
        lambda: text[:edge] + text[edge:].swapcase(),
    ][int(random.integers(5))]().encode()


def of_json(data, random):
    """A value, a key, an order, a type or a repeated key, in the same layout."""
    content = json.loads(data)
    inside, key = content, None
    while isinstance(inside, dict | list) and len(inside) and (key is None or random.random() < 0.8):
        outside = inside
        key = (
            str(random.choice(list(inside)))
            if isinstance(inside, dict)
            else int(random.integers(len(inside)))
        )
        inside = outside[key]
    is_map = isinstance(outside, dict)
    value = outside[key]
    kind = int(random.integers(6))
    if kind == 0:
        outside[key] = changed(value, random)
    elif kind == 1:
        del outside[key]
    elif kind == 2:
        if is_map:
            outside[f"{key}2"] = value
        else:
            outside.append(value)
    elif kind == 3 and is_map:
        outside[key] = outside.pop(key)
    elif kind == 4 and is_map:
        written = json.dumps(key)
        return data.replace(f"{written}:".encode(), f"{written}: 7, {written}:".encode(), 1)
    else:
        outside[key] = [value]
    return document(content) if data.startswith(b"{\n  ") else json.dumps(content).encode()


def changed(value, random):
    """Another value, often of the same type."""
    if isinstance(value, bool):
        return random.choice([1, 0, not value]).item()
    if isinstance(value, int | float):
        return [str(value), value + 1, value * 1.001 + 1e-3, None, -value - 1][int(random.integers(5))]
    if isinstance(value, str):
        return [value + " ", value.upper() + "x", "", None, value.replace("e", "é") + "."][
            int(random.integers(5))
        ]
    return [None, 0, "", []][int(random.integers(3))]


def of_csv(data, random):
    """A cell, a row or a column."""
    lines = data.decode().splitlines()
    row = int(random.integers(1, len(lines)))
    cells = lines[row].split(",")
    place = int(random.integers(len(cells)))
    cell = cells[place]
    cells[place] = [f"0{cell}", f"{cell}0", f"-{cell}", f'"{cell}"', f" {cell}", cell[:-1], f"+{cell}"][
        int(random.integers(7))
    ]
    other = int(random.integers(1, len(lines)))
    kind = int(random.integers(5))
    if kind == 0:
        lines[row], lines[other] = lines[other], lines[row]
    elif kind == 1:
        lines.insert(other, lines[row])
    elif kind == 2:
        lines = [f"{line},{'more' if i == 0 else 0.001}" for i, line in enumerate(lines)]
    else:
        lines[row] = ",".join(cells)
    return ("\n".join(lines) + "\n").encode()


def table_of(data):
    stream = io.BytesIO(data)
    return pq.read_table(stream) if data.startswith(b"PAR1") else pa.ipc.open_file(stream).read_all()


def of_arrow(write):
    def change(data, random):
        """A cell, a type, metadata, a row or a column."""
        table = table_of(data)
        place = int(random.integers(table.num_columns))
        field, values = table.schema.field(place), table.column(place).to_pylist()
        row = int(random.integers(len(values)))
        kind = int(random.integers(6))
        if kind <= 1:
            values[row] = (
                None
                if values[row] is not None and random.random() < 0.3
                else {"double": 0.001, "int64": 77}.get(str(field.type), "x")
            )
            table = table.set_column(place, field, pa.array(values).cast(field.type))
        elif kind == 2:
            key = str(random.choice(["querysmasher", "epsilon", "pandas"]))
            table = table.replace_schema_metadata({**table.schema.metadata, key: '{"epsilon": 0.001}'})
        elif kind == 3:
            table = pa.concat_tables([table.slice(row), table.slice(0, row)]) if row else table.slice(1)
        elif kind == 4:
            table = table.append_column("more", pa.array([0.001] * len(table)))
        else:
            table = table.set_column(place, field.with_metadata({"unit": "persons"}), table.column(place))
        stream = io.BytesIO()
        write(table, stream)
        return stream.getvalue()

    return change


def of_zip(data, random):
    """A member, its text, its name or its place, or a comment; with the checksum of an archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
        is_ours = "payload.json" in archive.namelist()
    place = int(random.integers(len(members)))
    name, content = members[place]
    kind = int(random.integers(6))
    if kind == 0:
        members.append(("xl/hidden.xml", b"<epsilon>0.001</epsilon>"))
    elif kind == 1:
        members[place] = (name.upper(), content)
    elif kind == 2:
        members.insert(0, members.pop(place) if place else members.pop())
    elif name.endswith(".json") and kind <= 4:
        members[place] = (name, of_json(content, random))
    elif name.endswith((".xml", ".rels")) and kind <= 4:
        members[place] = (name, of_text(content, random))
    else:
        members[place] = (name, of_bytes(content, random))
    stream = io.BytesIO()
    if is_ours:
        write_members(stream, dict(members))
    else:
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for own, text in members:
                archive.writestr(zipfile.ZipInfo(own, (1980, 1, 31, 0, 0, 0)), text, zipfile.ZIP_DEFLATED)
            archive.comment = b"epsilon = 0.001" if random.random() < 0.2 else b""
    return stream.getvalue()


def resealed(data, random):
    """Bytes anywhere in an archive, with its checksum put right."""
    inside = of_bytes(data[:-64], random)
    return inside + hashlib.sha256(inside).hexdigest().encode()


def zipped(change):
    return lambda data, random: gzip.compress(change(gzip.decompress(data), random), mtime=0)


def parquet(table, stream):
    noisy = ["value", "low", "high", "cv"]
    with pq.ParquetWriter(
        stream,
        table.schema,
        compression="ZSTD",
        compression_level=1,
        use_dictionary=[n for n in table.column_names if n not in (*noisy, "query")],
        use_byte_stream_split=noisy,
        write_statistics=False,
    ) as writer:
        writer.write_table(table)


def feather(table, stream):
    with pa.ipc.new_file(stream, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)


TEXTS = (of_bytes, of_text)
MUTATIONS = {
    "answers.csv": (*TEXTS, of_csv, of_csv),
    "answers.csv.gz": (of_bytes, zipped(of_text), zipped(of_csv)),
    "answers.json": (*TEXTS, of_json, of_json),
    "answers.parquet": (of_bytes, of_arrow(parquet)),
    "answers.arrow": (of_bytes, of_arrow(feather)),
    "answers.xlsx": (of_bytes, of_zip, of_zip),
    "estimates.csv": (*TEXTS, of_csv),
    "errors.csv": (*TEXTS, of_csv),
    "summary.json": (*TEXTS, of_json, of_json),
    "datapackage.json": (*TEXTS, of_json, of_json),
    "plan.qs": (of_bytes, resealed, of_zip, of_zip),
    "release.qs": (of_bytes, resealed, of_zip, of_zip),
    "report.html": TEXTS,
}


@cache
def release():
    """Always the same, and recorded as if its noise had been drawn at random."""
    made = qs.measure(planned(), TABLE, seed=1)
    noise = replace(made.noise, seeded=False, description=made.noise.distribution.description)
    return replace(made, noise=noise).described(title="A title", date="2024-03-01")


def put_right(folder, name):
    """State the size and the digest of a changed file, as somebody who changed it would."""
    package = folder / "datapackage.json"
    if name.startswith(("answers", "estimates")):
        stated = json.loads(package.read_text())
        for one in stated["resources"]:
            one.update({"bytes": (folder / one["path"]).stat().st_size} if "bytes" in one else {})
        package.write_bytes(document(stated))
    if name != "summary.json":
        stated = json.loads((folder / "summary.json").read_text())
        del stated["digests"]
        page = folder / "report.html"
        kept = page.read_bytes() if page.exists() else None
        page.unlink(missing_ok=True)  # which is written later
        summarised(folder, stated)
        if kept is not None:
            page.write_bytes(kept)


def same_content(name, given, expected):
    """Whether two files say the same, in the plainest way."""
    try:
        if name.endswith((".qs", ".xlsx")):
            return members_of(given) == members_of(expected)
        if name.endswith((".parquet", ".arrow")):
            one, other = table_of(given), table_of(expected)
            same = map(alike, one.to_pylist(), other.to_pylist())
            return (
                one.schema.equals(other.schema, check_metadata=True) and len(one) == len(other) and all(same)
            )
        if name.endswith(".gz"):
            return same_content("x.csv", gzip.decompress(given), gzip.decompress(expected))
        if name.endswith(".csv"):
            rows = [list(csv.reader(io.StringIO(data.decode(), newline=""))) for data in (given, expected)]
            tables = [[dict(zip(own[0], map(number, row), strict=True)) for row in own] for own in rows]
            return len(rows[0]) == len(rows[1]) and all(map(alike, *tables))
        if name.endswith(".json"):
            texts = [POINT.sub("0.0", data.decode()) for data in (given, expected)]
            return texts[0] == texts[1] and nested(json.loads(given), json.loads(expected))
    except (ValueError, zipfile.BadZipFile, OSError, EOFError, zlib.error, NotImplementedError, KeyError):
        return False
    return given == expected


POINT = re.compile(r"-?\d+\.\d+(e-?\d+)?")


def number(text):
    return float(text) if POINT.fullmatch(text) else text


def alike(row, wanted):
    """Whether a row is the same but for rounding: by a millionth of a standard error, or of a record."""
    units = {"std": wanted.get("std"), "cv": wanted.get("cv")}
    error = wanted.get("std")
    unit = error if isinstance(error, float) else 1.0
    return row.keys() == wanted.keys() and all(
        row[key] == value
        or (
            type(value) is type(row[key]) is float
            and math.isclose(row[key], value, rel_tol=1e-10, abs_tol=1.001e-6 * units.get(key, unit))
        )
        for key, value in wanted.items()
    )


def nested(one, other):
    """Whether plain data are the same but for rounding."""
    if isinstance(other, dict) and not any(isinstance(value, dict | list) for value in other.values()):
        return alike(one, other)
    pairs = (
        zip(one.values(), other.values(), strict=True)
        if isinstance(other, dict)
        else zip(one, other, strict=True)
    )
    return all(nested(*pair) if isinstance(pair[1], dict | list) else pair[0] == pair[1] for pair in pairs)


def members_of(data):
    """The members of an archive and what is written beside them, but for the checksum of one of ours."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        found = [(info.filename, info.comment, info.extra, archive.read(info)) for info in archive.infolist()]
        return found, None if "payload.json" in archive.namelist() else archive.comment


def mutate(name, folder, count, seed=0):
    """Return the mutations of a file that pass, by number; they have the same content."""
    path = folder / name
    kept = {p.name: p.read_bytes() for p in folder.iterdir()}
    random = np.random.default_rng([seed, *name.encode()])
    tried, found = 0, {}
    while tried < count:
        change = MUTATIONS[name][int(random.integers(len(MUTATIONS[name])))]
        data = change(kept[name], random)
        if data == kept[name]:
            continue
        tried += 1
        path.write_bytes(data)
        put_right(folder, name)
        try:
            passed = qs.verify(folder).ok
        except qs.QuerySmasherError:
            passed = False
        assert not passed or same_content(name, data, kept[name]), (name, tried, change.__name__)
        if passed:
            found[tried] = data
        for other, content in kept.items():
            (folder / other).write_bytes(content)
    return found


def made(name, folder):
    """A folder with the file to change, as the command writes it, and no slower ones than needed."""
    answers = name if name.startswith("answers") else "answers.csv"
    plan = planned() if name in ("plan.qs", "release.qs", "summary.json") else None
    published(folder, release(), answers, plan=plan)
    if name == "estimates.csv":
        release().estimate().write(release().workload, folder / name)
    if name == "errors.csv":
        arrow_csv.write_csv(release().estimate().errors().to_frame(), folder / name)
    put_right(folder, "other")
    if name == "report.html":
        release().report(folder / name)
    assert qs.verify(folder).outcome == OK
    return folder


def hurry(monkeypatch):
    """Make every page once, rehearse errors of estimates once, and do not wait for the disk."""
    make, pages = verify_module.release_page, {}

    def page(release, title, estimate):
        if title not in pages:
            pages[title] = make(release, title, estimate)
        return pages[title]

    monkeypatch.setattr(verify_module, "release_page", page)
    monkeypatch.setattr("querysmasher.estimate.estimate_errors.REHEARSALS", 1)
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_no_changed_file_passes(name, tmp_path, monkeypatch):
    pytest.importorskip("xlsxwriter")
    hurry(monkeypatch)
    passed = mutate(name, made(name, tmp_path / "out"), COUNT)
    assert len(passed) <= COUNT / 4  # these change last digits, or how a file is compressed


def test_every_kind_of_file_is_mutated():
    endings = {name.removeprefix("answers") for name in MUTATIONS}
    assert {*formats_by_ending()} - endings == {".pq", ".feather"}  # which are others by another name


if __name__ == "__main__":
    many = int(sys.argv[1])
    for one in sys.argv[2:] or MUTATIONS:
        with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
            hurry(patch)
            left = mutate(one, made(one, Path(place) / "out"), many)
        sys.stdout.write(f"{one}: {many - len(left)} of {many} found; with the same content: {[*left]}\n")
        sys.stdout.flush()
