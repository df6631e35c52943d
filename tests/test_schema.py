"""Schemas: what they know, and every domain that cannot be."""

import json
import math
from dataclasses import FrozenInstanceError
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given

import querysmasher as qs
from querysmasher.attributes import Attribute, attribute_from_json
from querysmasher.errors import SchemaError, UnknownAttributeError
from tests.strategies import schemas

SCHEMA = qs.Schema(
    [
        qs.Categorical("sex", ["F", "M"]),
        qs.Ordinal("age", range(100)),
        qs.Binned("income", edges=[0, 10_000, 25_000]),
        qs.Cyclic("hour", range(24)),
    ]
)


def test_a_schema_knows_names_sizes_places_and_shapes():
    assert SCHEMA.names == ("sex", "age", "income", "hour")
    assert SCHEMA.sizes == (2, 100, 2, 24)
    assert SCHEMA.position("income") == 2
    assert SCHEMA.positions(["hour", "sex"]) == (3, 0)
    assert SCHEMA.positions("age") == (1,)
    assert SCHEMA.shape(("hour", "sex")) == (24, 2)
    assert len(SCHEMA) == 4
    assert [a.name for a in SCHEMA] == list(SCHEMA.names)
    assert "age" in SCHEMA
    assert "Age" not in SCHEMA
    assert SCHEMA["income"].labels == ("[0, 10000)", "[10000, 25000]")


def test_every_kind_names_the_family_that_all_kway_gives_it():
    families = [g.families[0].name for g in qs.all_kway(SCHEMA, 1)]
    assert families == ["identity", "prefix", "prefix", "circular"]


def test_values_have_places_and_strangers_have_none(refuses):
    assert SCHEMA["sex"].position("M") == 1
    assert SCHEMA["age"].position(41.0) == 41
    for stranger in ("X", None, [1]):
        with refuses(SchemaError, ValueError, "'sex'"):
            SCHEMA["sex"].position(stranger)


def test_schema_of_takes_keywords_and_a_mapping():
    schema = qs.Schema.of({"hours per week": 3}, age=np.int64(4))
    assert schema == qs.Schema([qs.Ordinal("hours per week", [0, 1, 2]), qs.Ordinal("age", [0, 1, 2, 3])])


def test_numpy_values_become_plain_values():
    values = qs.Ordinal("x", np.arange(3)).values
    assert values == (0, 1, 2)
    assert all(type(v) is int for v in values)
    assert qs.Categorical("x", np.array(["a", "b"])).values == ("a", "b")


def test_values_are_copied_and_cannot_be_changed():
    values = ["a", "b"]
    attribute = qs.Categorical("x", values)
    values.append("c")
    assert attribute.size == 2
    with pytest.raises(FrozenInstanceError):
        attribute.values = ("z",)
    with pytest.raises(FrozenInstanceError):
        SCHEMA.attributes = ()


def test_schemas_are_compared_and_hashed_by_content():
    again = qs.Schema(list(SCHEMA.attributes))
    assert again == SCHEMA
    assert hash(again) == hash(SCHEMA)
    assert qs.Schema.of(a=3) != qs.Schema.of(a=4)
    assert qs.Schema([qs.Ordinal("a", range(3))]) != qs.Schema([qs.Cyclic("a", range(3))])


@given(schemas())
def test_a_schema_comes_back_from_json_unchanged(schema):
    again = qs.Schema.from_json(json.loads(json.dumps(schema.to_json())))
    assert again == schema
    assert [type(a) for a in again] == [type(a) for a in schema]


def test_a_long_predicate_comes_back_from_json():
    """It was accepted, and the plans and releases with it could not be loaded."""
    schema = qs.Schema.of(a=300, b=2).impossible(f"a in {list(range(0, 300, 2))} and b == 1")
    assert qs.Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema


def test_a_long_schema_prints_shortly():
    shown = repr(qs.Schema.of({f"a{i}": 2 for i in range(40)}))
    assert "a7: 2 ordinal values" in shown
    assert "a8" not in shown
    assert shown.endswith(", … 32 more)")
    shown = qs.Schema.of({f"a{i}": 10**6 for i in range(9)})._repr_html_()
    assert "<td>a7</td><td>ordinal</td>" in shown
    assert "<td>a8</td>" not in shown
    assert "1 more attribute<" in shown
    assert "1,000,000" in shown


@pytest.mark.parametrize("kind", [qs.Categorical, qs.Ordinal, qs.Cyclic])
@pytest.mark.parametrize(
    ("values", "word"),
    [
        ([], "empty"),
        (["a", "b", "a"], "'a' is given more than once"),
        ([1, 1.0], "more than once"),
        ([1, True], "more than once"),
        ([float("nan")], "NaN"),
        ([None], "None"),
        ([[1]], "expected strings, numbers or dates"),
        ([Decimal(1)], "expected strings, numbers or dates"),
        ("abc", "'abc'"),
        (7, "7"),
    ],
)
def test_values_that_cannot_be_are_refused(kind, values, word, refuses):
    with refuses(SchemaError, ValueError, word, "'x'"):
        kind("x", values)


@pytest.mark.parametrize(
    ("edges", "word"),
    [
        ([], "empty"),
        ([1], "empty"),
        ([0, 0], "increasing"),
        ([0, 2, 1], "increasing"),
        ([-math.inf, math.inf], "finite"),
        ([0, math.inf, math.inf], "finite"),
        ([math.inf, 0], "finite"),
        ([0, math.nan], "got [0, nan]"),
        ([0, 10**400], "finite"),
        (["a", "b"], "finite numbers"),
        ([False, True], "finite numbers"),
        ("0123", "list of numbers"),
        (5, "list of numbers"),
    ],
)
def test_edges_that_cannot_be_are_refused(edges, word, refuses):
    with refuses(SchemaError, ValueError, word, "'x'"):
        qs.Binned("x", edges=edges)


@pytest.mark.parametrize("name", ["", None, 3])
def test_names_that_cannot_be_are_refused(name, refuses):
    with refuses(SchemaError, ValueError, "name"):
        qs.Ordinal(name, [1])


def test_an_attribute_must_have_a_kind(refuses):
    with refuses(SchemaError, ValueError, "Categorical, Ordinal, Binned, Number or Cyclic"):
        Attribute("x", [1])
    with refuses(SchemaError, ValueError, "kind", "'fuzzy'"):
        attribute_from_json({"kind": "fuzzy", "name": "x", "values": [1]})


@pytest.mark.parametrize(
    ("attributes", "word"),
    [
        ([], "at least one"),
        ([qs.Ordinal("x", [1]), qs.Cyclic("x", [1, 2])], "'x' is used more than once"),
        (["x"], "'x'"),
        ("x", "'x'"),
        (3, "3"),
        (qs.Ordinal("x", [1]), "list of Categorical"),
    ],
)
def test_attributes_that_make_no_schema_are_refused(attributes, word, refuses):
    with refuses(SchemaError, ValueError, word):
        qs.Schema(attributes)


@pytest.mark.parametrize("size", [0, -1, 2.0, "3", True, None])
def test_sizes_that_are_no_sizes_are_refused(size, refuses):
    with refuses(SchemaError, ValueError, "size of attribute 'a'", repr(size)):
        qs.Schema.of(a=size)
    with refuses(SchemaError, ValueError, "mapping"):
        qs.Schema.of(5)


def test_an_unknown_attribute_is_named_with_the_nearest_known_one(refuses):
    with refuses(UnknownAttributeError, KeyError, "'agee'", "did you mean 'age'?", "'sex'"):
        SCHEMA["agee"]
    with refuses(UnknownAttributeError, KeyError, "expected a name, got 3"):
        SCHEMA.position(3)
    with refuses(UnknownAttributeError, KeyError):
        SCHEMA.position(["age"])


def test_a_repeated_attribute_is_named(refuses):
    with refuses(SchemaError, ValueError, "'age' is named more than once"):
        SCHEMA.positions(["age", "sex", "age"])
