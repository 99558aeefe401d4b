"""Partition map ⇄ bytes, as in `control` records, Redis and proposal files.

Layout: 8 magic bytes that name the format's version, then a zlib stream (with its checksum) of a u4
header length, the header as canonical JSON, and the header's columns in order, little-endian. Equal
maps give equal bytes.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.model.errors import InvalidArgument
from sirocco.schemes.map.map import Box, KeywordNode, Leaf, PartitionMap, Place, TextNode

MAGIC = b"SIRMAP\x00\x02"

# A proposal may come from outside (a Spark job's file); without a bound a few crafted bytes would
# inflate to all memory. 1,024 leaves with 300 text nodes inflate to about 45 MB.
INFLATED_BYTES_MAX = 256 << 20

# Bytes of the header. The maximum of nodes and columns of a map takes some 3 MB of JSON; a list of
# 100 million elements, to which 200 kB inflate, takes two gigabytes and nine seconds of a process.
HEADER_BYTES_MAX = 6 << 20

# Characters of the scheme's name.
NAME_LENGTH_MAX = 64

# Columns of leaves: ids, boxes, places, slots, loads.
_LEAF_COLUMNS = ("<i4", "<f8", "<i4", "<i4", "<f8")
_TEXT_COLUMNS = {
    "terms": "<u8",
    "share": "<f8",
    "held": "|u1",
    "weights": "<f8",
    "lengths": "<f8",
    "held_share": "<f8",
    "objects": "<f8",
}
# Terms, and the child of each.
_KEYWORD_COLUMNS = ("<u8", "<i4")
# Columns of the map: frequent terms, their frequencies.
_FREQUENCY_COLUMNS = ("<u8", "<f4")


def to_bytes(partition_map: PartitionMap) -> bytes:
    """Returns the map as bytes."""
    columns: list[tuple[str, NDArray[Any]]] = [
        ("<i4", np.array([leaf.id for leaf in partition_map.leaves])),
        ("<f8", np.array([leaf.box for leaf in partition_map.leaves])),
        ("<i4", np.array([_place_row(leaf.within) for leaf in partition_map.leaves])),
        ("<i4", partition_map.slot_of_leaf),
        ("<f8", partition_map.load_of_leaf),
    ]
    for node in partition_map.text_nodes:
        columns += [(kind, getattr(node, name)) for name, kind in _TEXT_COLUMNS.items()]
    for keyword_node in partition_map.keyword_nodes:
        columns += [("<u8", keyword_node.terms), ("<i4", keyword_node.child_of_term)]
    columns += [("<u8", partition_map.frequent_terms), ("<f4", partition_map.frequencies)]
    header = {
        "version": partition_map.version,
        "scheme": partition_map.scheme,
        "world": partition_map.world,
        "slots": partition_map.slots,
        "text_nodes": [[n.id, n.box, _place_row(n.within)] for n in partition_map.text_nodes],
        "keyword_nodes": [
            [n.id, n.box, _place_row(n.within), n.children, n.by_term]
            for n in partition_map.keyword_nodes
        ],
        "columns": [[kind, list(column.shape)] for kind, column in columns],
    }
    head = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    body = [np.ascontiguousarray(column, dtype=kind).tobytes() for kind, column in columns]
    return MAGIC + zlib.compress(b"".join([struct.pack("<I", len(head)), head, *body]), 6)


def from_bytes(data: bytes) -> PartitionMap:
    """Returns the map that the bytes hold, checked like any other.

    Raises:
        InvalidArgument: Another format or version, damaged bytes, or an invalid map.
    """
    if data[: len(MAGIC)] != MAGIC:
        raise InvalidArgument("these bytes are no partition map of a known form", field="map")
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(data[len(MAGIC) :], INFLATED_BYTES_MAX)
        if not inflater.eof:
            raise InvalidArgument("the bytes are cut short or inflate too far", field="map")
        if inflater.unused_data:
            raise InvalidArgument("bytes follow after the end of the map", field="map")
        return _parse(plain)
    except (
        StopIteration,
        zlib.error,
        struct.error,
        ValueError,
        TypeError,
        LookupError,
        OverflowError,
        RecursionError,
    ) as error:
        if isinstance(error, InvalidArgument):
            raise
        raise InvalidArgument(f"the bytes are damaged ({error})", field="map") from error


def _parse(plain: bytes) -> PartitionMap:
    (size,) = struct.unpack_from("<I", plain)
    if size > HEADER_BYTES_MAX:
        raise InvalidArgument(f"a header of {size} bytes, over {HEADER_BYTES_MAX}", field="map")
    header = json.loads(plain[4 : 4 + size])
    columns: list[NDArray[Any]] = []
    at = 4 + size
    expected = (
        *_LEAF_COLUMNS,
        *(*_TEXT_COLUMNS.values(),) * len(header["text_nodes"]),
        *_KEYWORD_COLUMNS * len(header["keyword_nodes"]),
        *_FREQUENCY_COLUMNS,
    )
    # The compiled code of routers only takes these types.
    if tuple(kind for kind, _ in header["columns"]) != expected:
        raise InvalidArgument("the columns are not those of leaves and nodes", field="map")
    for kind, shape in header["columns"]:
        count = int(np.prod(shape, dtype=np.int64))
        column = np.frombuffer(plain, kind, count, at).reshape(shape)
        at += column.nbytes
        columns.append(column.astype(column.dtype.newbyteorder("="), copy=False))
    ids, boxes, places, slot_of_leaf, load_of_leaf = columns[:5]
    leaves = tuple(
        Leaf(one, _box(box), _place(place))
        for one, box, place in zip(ids.tolist(), boxes.tolist(), places.tolist(), strict=True)
    )
    nodes = []
    for number, (one, box, place) in enumerate(header["text_nodes"]):
        first = 5 + number * len(_TEXT_COLUMNS)
        own = dict(zip(_TEXT_COLUMNS, columns[first : first + len(_TEXT_COLUMNS)], strict=True))
        nodes.append(TextNode(id=_whole(one), box=_box(box), within=_place(place), **own))
    rest = iter(columns[5 + len(nodes) * len(_TEXT_COLUMNS) :])
    keyword_nodes = [
        KeywordNode(
            id=_whole(one),
            box=_box(box),
            within=_place(place),
            children=_whole(children),
            terms=next(rest),
            child_of_term=next(rest),
            by_term=bool(by),
        )
        for one, box, place, children, by in header["keyword_nodes"]
    ]
    return PartitionMap(
        version=_whole(header["version"]),
        scheme=_text(header["scheme"]),
        world=_box(header["world"]),
        leaves=leaves,
        text_nodes=tuple(nodes),
        slot_of_leaf=slot_of_leaf,
        load_of_leaf=load_of_leaf,
        slots=_whole(header["slots"]),
        keyword_nodes=tuple(keyword_nodes),
        frequent_terms=next(rest),
        frequencies=next(rest),
    )


def _place_row(place: Place | None) -> tuple[int, int]:
    return (-1, -1) if place is None else (place.node, place.child)


def _place(row: Any) -> Place | None:
    node, child = (_whole(value) for value in row)
    return None if node < 0 else Place(node, child)


def _box(row: Any) -> Box:
    west, south, east, north = (_number(value) for value in row)
    return west, south, east, north


def _whole(value: Any) -> int:
    """Returns a whole number from JSON: `int` also accepts strings, booleans and fractions."""
    if type(value) is not int:
        raise InvalidArgument(f"{value!r:.60} is no whole number", field="map")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise InvalidArgument(f"{value!r:.60} is no number", field="map")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > NAME_LENGTH_MAX:
        raise InvalidArgument(f"{value!r:.60} is no name", field="map")
    return value
