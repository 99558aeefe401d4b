"""The state of an owned Kafka partition ⇄ bytes, as in the archive.

Layout: 8 magic bytes that name the format's version, u8 xxh3-64 of all that follows, u8 length of
the header, the header as JSON (name, type, shape of each column, ascending by name), and the
columns in that order, little-endian, each at a multiple of 8 bytes. Equal states give equal bytes.
Nothing is compressed: columns are read in place, and a damaged header can never claim more memory
than the bytes themselves.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import orjson
import xxhash
from numpy.typing import NDArray

from sirocco.model.errors import Internal
from sirocco.protocol.contract.effects import State

MAGIC = b"SIRSTA\x00\x01"

# States have a few dozen columns; more, or a longer header, is invalid.
COLUMNS_MAX = 1_024
HEADER_BYTES_MAX = 1 << 18

_PREFIX = struct.Struct("<8sQQ")
_ALIGNMENT = 8
_TYPES = {"|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8"}


class CorruptCheckpoint(Internal):
    """The bytes of a checkpoint are not those that were written."""


def write_state(state: State) -> bytes:
    """Returns the state as bytes; see `state_pieces`."""
    return b"".join(state_pieces(state))


def state_pieces(state: State) -> list[bytes | memoryview]:
    """Returns the state as bytes in pieces, most of them views of its columns.

    Writing them one by one copies nothing: joining them would block all other threads of the
    interpreter during the copy.

    Raises:
        ValueError: Too many columns, or a column that is not numeric.
    """
    columns = {name: _little_endian(name, state[name]) for name in sorted(state)}
    if len(columns) > COLUMNS_MAX:
        raise ValueError(f"a state has at most {COLUMNS_MAX} columns, not {len(columns)}")
    header = orjson.dumps(
        [[name, column.dtype.str, list(column.shape)] for name, column in columns.items()]
    )
    parts: list[bytes | memoryview] = [header, _padding(len(header))]
    for column in columns.values():
        parts += [column.reshape(-1).view(np.uint8).data, _padding(column.nbytes)]
    digest = xxhash.xxh3_64()
    digest.update(struct.pack("<Q", len(header)))
    for part in parts:
        digest.update(part)
    return [_PREFIX.pack(MAGIC, digest.intdigest(), len(header)), *parts]


def read_state(data: bytes) -> State:
    """Returns the state; its columns are read-only views of `data`.

    Raises:
        CorruptCheckpoint: Another format or version, or damaged bytes.
    """
    if len(data) < _PREFIX.size:
        raise CorruptCheckpoint("is cut short")
    magic, digest, header_bytes = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise CorruptCheckpoint("is no checkpoint of a known form")
    view = memoryview(data)
    if xxhash.xxh3_64_intdigest(view[16:]) != digest:
        raise CorruptCheckpoint("its checksum is wrong")
    at = _PREFIX.size + header_bytes
    if header_bytes > HEADER_BYTES_MAX or at > len(data):
        raise CorruptCheckpoint("its header is too long")
    entries = _read_header(view[_PREFIX.size : at])
    at += len(_padding(header_bytes))
    state: dict[str, NDArray[Any]] = {}
    for name, dtype, shape in entries:
        count = math.prod(shape)
        size = count * dtype.itemsize
        if at + size > len(data):
            raise CorruptCheckpoint(f"ends within column {name!r:.80}")
        state[name] = np.frombuffer(data, dtype, count, at if count else 0).reshape(shape)
        at += size + len(_padding(size))
    if at != len(data):
        raise CorruptCheckpoint("has bytes after its last column")
    return state


def _little_endian(name: str, column: NDArray[Any]) -> NDArray[Any]:
    flat = np.ascontiguousarray(column).reshape(column.shape)
    little = flat.astype(flat.dtype.newbyteorder("<"), copy=False)
    if little.dtype.str not in _TYPES:
        raise ValueError(f"column {name!r} is of type {column.dtype}")
    return little


def _padding(size: int) -> bytes:
    return bytes(-size % _ALIGNMENT)


def _read_header(data: memoryview) -> list[tuple[str, np.dtype[Any], tuple[int, ...]]]:
    try:
        listed = orjson.loads(data)
        entries = [(str(name), str(dtype), tuple(shape)) for name, dtype, shape in listed]
    except (orjson.JSONDecodeError, TypeError, ValueError) as error:
        raise CorruptCheckpoint(f"its header cannot be read ({error})") from None
    if len(entries) > COLUMNS_MAX:
        raise CorruptCheckpoint(f"has more than {COLUMNS_MAX} columns")
    for name, dtype, shape in entries:
        if dtype not in _TYPES:
            raise CorruptCheckpoint(f"column {name!r:.80} is of type {dtype!r:.20}")
        if not all(type(length) is int and length >= 0 for length in shape):
            raise CorruptCheckpoint(f"column {name!r:.80} has the shape {shape!r:.80}")
    return [(name, np.dtype(dtype), shape) for name, dtype, shape in entries]
