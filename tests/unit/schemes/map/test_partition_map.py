"""A partition map is checked when created, and its bytes restore it or are refused."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.model.errors import InvalidArgument
from sirocco.schemes.map.map import WORLD, KeywordNode, Leaf, PartitionMap, Place
from sirocco.schemes.map.map_bytes import MAGIC, from_bytes, to_bytes
from tests.support.random_maps import random_map

WEST = (-180.0, -90.0, 0.0, 90.0)
EAST = (0.0, -90.0, 180.0, 90.0)


def make(boxes=(WEST, EAST), **changes):
    values: dict[str, Any] = {
        "version": 1,
        "scheme": "test",
        "world": WORLD,
        "leaves": tuple(Leaf(i, box) for i, box in enumerate(boxes)),
        "text_nodes": (),
        "slot_of_leaf": np.zeros(len(boxes), np.int32),
        "load_of_leaf": np.ones(len(boxes)),
        "slots": 1,
    }
    return PartitionMap(**(values | changes))


@pytest.mark.parametrize(
    ("boxes", "reason"),
    [
        ((WEST,), "gap"),
        ((WEST, (1.0, -90.0, 180.0, 90.0)), "gap"),
        ((WEST, (-1.0, -90.0, 180.0, 90.0)), "overlap"),
        ((WEST, WEST, EAST), "overlap"),
        ((WEST, (0.0, -90.0, 180.0, 89.0)), "gap"),
        ((WEST, (0.0, -90.0, 181.0, 90.0)), "leaves its frame"),
        ((WEST, EAST, (5.0, 5.0, 5.0, 6.0)), "narrower"),
        ((WEST, EAST, (6.0, 5.0, 5.0, 6.0)), "narrower"),
        ((WEST, (0.0, -90.0, float("nan"), 90.0)), "not finite"),
        ((), "0 boxes"),
    ],
)
def test_gaps_and_overlaps_are_refused_with_the_reason(boxes, reason):
    with pytest.raises(InvalidArgument, match=reason):
        make(boxes)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"version": 0}, "map.version"),
        ({"slots": 0}, "map.slots"),
        ({"slot_of_leaf": np.array([0, 1], np.int32)}, "map.slot_of_leaf"),
        ({"slot_of_leaf": np.array([0, -1], np.int32)}, "map.slot_of_leaf"),
        ({"slot_of_leaf": np.array([0], np.int32)}, "map.slot_of_leaf"),
        ({"load_of_leaf": np.array([1.0, -1.0])}, "map.load_of_leaf"),
        ({"load_of_leaf": np.array([1.0])}, "map.load_of_leaf"),
        ({"leaves": (Leaf(3, WEST), Leaf(3, EAST))}, "map.leaves"),
        ({"leaves": (Leaf(-1, WEST), Leaf(3, EAST))}, "map.leaves"),
        ({"leaves": (Leaf(1, WEST), Leaf(3, EAST, Place(9, 0)))}, "map.leaves"),
    ],
)
def test_numbers_out_of_range_are_refused_by_field(changes, field):
    with pytest.raises(InvalidArgument) as caught:
        make(**changes)
    assert caught.value.field == field


def map_with_text():
    for seed in range(100):
        partition_map = random_map(np.random.default_rng(seed))
        if any(node.within is not None for node in partition_map.text_nodes):
            return partition_map
    raise AssertionError("no random map nests text nodes")


def test_a_text_node_needs_all_its_children_tiled():
    partition_map = map_with_text()
    lost = next(i for i, leaf in enumerate(partition_map.leaves) if leaf.within is not None)
    keep = [i for i in range(len(partition_map.leaves)) if i != lost]
    with pytest.raises(InvalidArgument, match=r"gap|0 boxes"):
        replace(
            partition_map,
            leaves=tuple(partition_map.leaves[i] for i in keep),
            slot_of_leaf=partition_map.slot_of_leaf[keep],
            load_of_leaf=partition_map.load_of_leaf[keep],
        )


def test_a_text_node_within_itself_is_refused():
    partition_map = map_with_text()
    nodes = list(partition_map.text_nodes)
    inner = next(i for i, node in enumerate(nodes) if node.within is not None)
    nodes[inner] = replace(nodes[inner], within=Place(nodes[inner].id, 0))
    with pytest.raises(InvalidArgument, match="within itself"):
        replace(partition_map, text_nodes=tuple(nodes))


@pytest.mark.parametrize("column", ["share", "held", "weights", "held_share", "objects"])
def test_columns_of_a_text_node_have_to_fit_together(column):
    partition_map = map_with_text()
    node = partition_map.text_nodes[0]
    broken = replace(node, **{column: getattr(node, column)[:-1]})
    with pytest.raises(InvalidArgument, match=column):
        replace(partition_map, text_nodes=(broken, *partition_map.text_nodes[1:]))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_bytes_give_the_map_back(seed):
    partition_map = random_map(np.random.default_rng(seed))
    again = from_bytes(to_bytes(partition_map))
    assert again.leaves == partition_map.leaves, f"seed {seed}"
    assert (again.slot_of_leaf == partition_map.slot_of_leaf).all(), f"seed {seed}"
    assert to_bytes(again) == to_bytes(partition_map), f"seed {seed}"


def test_loads_of_slots_are_the_sums_of_their_leaves():
    partition_map = make(slot_of_leaf=np.array([2, 0], np.int32), slots=3)
    assert partition_map.load_of_slot().tolist() == [1, 0, 1]
    assert partition_map.with_version(7).version == 7


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_damaged_bytes_are_refused(seed):
    rng = np.random.default_rng(seed)
    data = bytearray(to_bytes(random_map(np.random.default_rng(9))))
    if rng.random() < 0.3:
        data = data[: rng.integers(len(data))]
    else:
        data[rng.integers(len(data))] ^= int(rng.integers(1, 256))
    with pytest.raises(InvalidArgument):
        from_bytes(bytes(data))
    assert to_bytes(random_map(np.random.default_rng(9))) != bytes(data), f"seed {seed}"


def map_with_keywords():
    words = np.array([3, 5, 8], np.uint64)
    return make(
        leaves=(Leaf(0, WORLD, Place(4, 0)), Leaf(1, WORLD, Place(4, 1))),
        keyword_nodes=(
            KeywordNode(
                id=4,
                box=WORLD,
                within=None,
                children=2,
                terms=words,
                child_of_term=np.array([0, 1, 0], np.int32),
            ),
        ),
        frequent_terms=words,
        frequencies=np.ones(3, np.float32),
    )


def written_otherwise(partition_map, change):
    """Returns the bytes of a map as another program may write it, with other column types."""
    plain = zlib.decompress(to_bytes(partition_map)[len(MAGIC) :])
    (size,) = struct.unpack_from("<I", plain)
    header = json.loads(plain[4 : 4 + size])
    columns, at = [], 4 + size
    for kind, shape in header["columns"]:
        columns.append(np.frombuffer(plain, kind, int(np.prod(shape)), at).reshape(shape))
        at += columns[-1].nbytes
    columns = change(columns)
    header["columns"] = [[one.dtype.str, list(one.shape)] for one in columns]
    head = json.dumps(header).encode()
    body = [one.tobytes() for one in columns]
    return MAGIC + zlib.compress(b"".join([struct.pack("<I", len(head)), head, *body]))


@pytest.mark.parametrize("made", [map_with_text, map_with_keywords])
def test_columns_of_another_type_are_refused(made):
    """Routers pass them to compiled code, which accepts no other types."""
    partition_map = made()
    assert from_bytes(written_otherwise(partition_map, list)).leaves == partition_map.leaves
    count = len(written_columns(partition_map))
    for number in range(count):

        def retyped(columns, number=number):
            kind = np.float64 if columns[number].dtype != np.float64 else np.float32
            columns[number] = columns[number].astype(kind)
            return columns

        with pytest.raises(InvalidArgument):
            from_bytes(written_otherwise(partition_map, retyped))


def written_columns(partition_map):
    found = []

    def keep(columns):
        found.extend(columns)
        return columns

    written_otherwise(partition_map, keep)
    return found


@pytest.mark.parametrize("first", [5, 7])
def test_keywords_in_rows_are_refused(first):
    def in_rows(columns):
        columns[first : first + 2] = [one.reshape(-1, 1) for one in columns[first : first + 2]]
        return columns

    with pytest.raises(InvalidArgument):
        from_bytes(written_otherwise(map_with_keywords(), in_rows))


@pytest.mark.parametrize("tail", [b"x", b""])
def test_bytes_of_another_form_are_refused(tail):
    data = to_bytes(make())
    with pytest.raises(InvalidArgument):
        from_bytes(data[:-1] + tail + b"!")
    with pytest.raises(InvalidArgument, match="no partition map"):
        from_bytes(b"SIRMAP\x00\x7f" + data[len(MAGIC) :])
