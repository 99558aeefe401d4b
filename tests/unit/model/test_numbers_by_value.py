"""Numbers keep their value from the text of JSON to a comparison, or are refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sirocco_api.v1 import query_pb2 as pb

from sirocco.cli.files.query_file import read_queries
from sirocco.codec.queries import read_query
from sirocco.loadgen.lines import read_objects
from sirocco.model.attributes import Filter, members_of
from sirocco.model.errors import InvalidArgument
from sirocco.model.json_text import load_json, may_exceed_64_bits
from sirocco.model.objects import ObjectColumnsBuilder, ObjectRow, parse_object, split_valid
from sirocco.protocol.contract.track_values import track_value

BEYOND = [2**64, 2**64 + 1, -(2**63) - 1, 2**70, 2**70 + 1, -(2**70), 10**29, 10**400, -(10**5000)]
WITHIN = [0, 2**53 + 1, -(2**53) - 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)]


def text_of(number: int) -> str:
    # Python writes at most 4,300 digits by default.
    return str(number) if abs(number) < 10**4000 else "-1" + "0" * 5000


@pytest.mark.parametrize("number", BEYOND, ids=lambda n: f"{n.bit_length()} bits")
def test_an_integer_beyond_64_bits_is_refused_in_each_place_with_its_field(number: int) -> None:
    digits = text_of(number)
    line = f'{{"id":1,"lon":0,"lat":0,"n":{digits}}}'
    nested = f'{{"id":1,"lon":0,"lat":0,"n":{{"deep":[1,{digits}]}}}}'
    query = f'{{"id":"q","kind":"range","mode":"snapshot","where":{{"n":{digits}}}}}'
    for text, field in ((line, "attributes.n"), (nested, "attributes.n.deep[1]")):
        with pytest.raises(InvalidArgument) as caught:
            parse_object(text)
        assert caught.value.field == field
    message = pb.Query(id="q", mode=pb.QUERY_MODE_SNAPSHOT)
    message.range.SetInParent()
    for where, field in (
        (f'{{"n":{digits}}}', "where.n"),
        (f'{{"n":{{"gte":{digits}}}}}', "where.n.gte"),
        (f'{{"n":{{"in":[1,{digits}]}}}}', "where.n.in[1]"),
    ):
        message.where = where
        with pytest.raises(InvalidArgument) as caught:
            read_query(message)
        assert caught.value.field == field
    assert load_json(query, "query")["where"]["n"] not in WITHIN


@pytest.mark.parametrize("number", BEYOND, ids=lambda n: f"{n.bit_length()} bits")
def test_files_of_objects_and_queries_refuse_such_lines_alone(tmp_path: Path, number: int) -> None:
    digits = text_of(number)
    objects, queries = tmp_path / "objects.ndjson", tmp_path / "queries.ndjson"
    objects.write_text(
        "".join(
            f'{{"id":{i},"lon":0,"lat":0,"n":{n}}}\n'
            for i, n in ((1, "5"), (2, digits), (3, str(2**64 - 1)))
        )
    )
    (batch,) = read_objects(objects, "objects")
    assert batch.objects.ids.tolist() == [1, 3]
    assert [(bad.line, bad.error.field) for bad in batch.bad] == [(2, "attributes.n")]
    queries.write_text(
        f'{{"id":"q","kind":"range","mode":"snapshot","where":{{"n":{{"lt":{digits}}}}}}}\n'
    )
    (bad,) = read_queries(queries, "queries")
    assert (bad.line, bad.error.field) == (1, "where.n.lt")  # type: ignore[union-attr]


def test_a_batch_from_a_client_refuses_the_row_alone() -> None:
    rows = ObjectColumnsBuilder()
    for i, n in enumerate([5, 2**70, 2**64 - 1, 2.0**70, -(2**63) - 1]):
        rows.add(
            ObjectRow(
                id=i,
                name="",
                lon=0.0,
                lat=0.0,
                ts=0,
                text="",
                attributes=json.dumps({"n": n, "s": "9" * 30}).encode(),
            )
        )
    good, errors = split_valid(rows.build())
    assert good.tolist() == [0, 2, 3]
    assert [(row, error.field) for row, error in errors] == [
        (1, "attributes.n"),
        (4, "attributes.n"),
    ]


@pytest.mark.parametrize("number", WITHIN)
def test_an_integer_within_64_bits_is_matched_exactly(number: int) -> None:
    kept = Filter.parse(orjson.loads(orjson.dumps(Filter.parse({"n": number}).canonical())))
    for other in (number - 1, number, number + 1):
        if -(2**63) <= other < 2**64:
            row = parse_object(f'{{"id":1,"lon":0,"lat":0,"n":{other}}}')
            assert kept.matches(members_of(row.attributes)) == (other == number)


NUMBERS = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([2**53, 2**53 + 1, float(2**53), 2**63, 2.0**63, 2.0**64, 2**64 - 1, -0.0]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(2**53 - 4, 2**53 + 4).map(float),
)


@given(wanted=NUMBERS, found=NUMBERS)
@example(wanted=float(2**53), found=2**53 + 1)
@example(wanted=2**53 + 1, found=float(2**53))
@example(wanted=2.0**64, found=2**64 - 1)
def test_numbers_compare_by_value_whatever_their_form(wanted: Any, found: Any) -> None:
    row = parse_object(json.dumps({"id": 1, "lon": 0, "lat": 0, "n": found}))
    attributes = members_of(row.attributes)
    for comparison, holds in (
        ("gte", found >= wanted),
        ("gt", found > wanted),
        ("lte", found <= wanted),
        ("lt", found < wanted),
    ):
        where = Filter.parse(json.loads(json.dumps({"n": {comparison: wanted}})))
        kept = Filter.parse(orjson.loads(orjson.dumps(where.canonical())))
        assert where.matches(attributes) == kept.matches(attributes) == holds
    assert Filter.parse({"n": wanted}).matches(attributes) == (found == wanted)
    assert Filter.parse({"n": {"in": [wanted, "x"]}}).matches(attributes) == (found == wanted)
    # A tracked value is compared by value, too.
    same = track_value(attributes["n"]) == track_value(members_of(orjson.dumps({"n": wanted}))["n"])
    assert same == (found == wanted)


@given(st.recursive(st.one_of(st.integers(), NUMBERS, st.text()), st.lists, max_leaves=6))
def test_texts_are_read_as_they_are_written(value: Any) -> None:
    text = json.dumps(value)
    assert load_json(text, "value") == json.loads(text)


def test_long_runs_of_digits_that_are_no_large_integers_pass() -> None:
    for text in ('{"id": 18446744073709551615}', '"1234567890123456789"', "-9223372036854775808"):
        assert not may_exceed_64_bits(text.encode())
    for text in ('{"s": "123456789012345678901234567890"}', "[0.123456789012345678901234567890]"):
        assert load_json(text, "value") == json.loads(text)


@pytest.mark.parametrize(
    "text", ["1e400", "NaN", "[99999999999999999999, Infinity]", "[" * 100_000]
)
def test_what_is_no_number_of_json_is_refused(text: str) -> None:
    for pad in ("", "99999999999999999999,"):
        with pytest.raises(InvalidArgument, match="no JSON"):
            load_json(f"[{pad}{text}]", "value")


def test_half_a_pair_of_surrogates_is_no_text_whatever_is_beside_it() -> None:
    """It would pass into errors that name it, and no answer could carry them."""
    for text in (r'"\ud800"', r'{"\udfff": 1}', r'["\ud83d", "\ude00"]'):
        for pad in ("1", "99999999999999999999"):
            with pytest.raises(InvalidArgument, match="no JSON"):
                load_json(f"[{pad}, {text}]", "value")
    assert load_json(r'[99999999999999999999, "\ud83d\ude00"]', "value")[1] == "\U0001f600"


def test_hashes_of_ids_do_not_slow_a_file_down() -> None:
    ids = np.random.default_rng(7).integers(0, 2**64, 2000, np.uint64)
    assert not may_exceed_64_bits(b"\n".join(b'{"id":%d}' % i for i in ids.tolist()))
