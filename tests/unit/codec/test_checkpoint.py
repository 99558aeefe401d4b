"""States as bytes: exact, stable, and rejected when damaged."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest
import xxhash

from sirocco.codec.checkpoint import CorruptCheckpoint, read_state, write_state
from sirocco.model.errors import Internal

TYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]


def random_state(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = [(0,), (1,), (5,), (0, 2), (3, 2), (), (1000,)]
    state = {}
    for number in range(int(rng.integers(0, 12))):
        shape = shapes[rng.integers(len(shapes))]
        values = rng.integers(0, 100, shape)
        state[f"query.ü{number}"] = np.asarray(values, TYPES[rng.integers(len(TYPES))])
    return state


@pytest.mark.parametrize("seed", range(30))
def test_states_are_kept_exactly_and_equal_ones_give_equal_bytes(seed: int) -> None:
    state = random_state(seed)
    data = write_state(state)
    again = read_state(data)
    assert again.keys() == state.keys(), f"seed={seed}"
    for name, column in state.items():
        assert again[name].dtype == column.dtype, f"seed={seed}"
        assert again[name].shape == column.shape, f"seed={seed}"
        assert (again[name] == column).all(), f"seed={seed}"
        assert again[name].flags.aligned
        assert not again[name].flags.writeable
    assert write_state(dict(reversed(list(state.items())))) == data


def test_columns_are_views_of_the_bytes() -> None:
    data = write_state({"a": np.arange(1000)})
    column = read_state(data)["a"]
    assert np.shares_memory(column, np.frombuffer(data, np.uint8))


def test_columns_of_any_layout_are_written() -> None:
    table = np.arange(12).reshape(3, 4)
    again = read_state(write_state({"a": table[:, ::2], "b": table.T, "c": table.astype(">i4")}))
    assert (again["a"] == table[:, ::2]).all()
    assert (again["b"] == table.T).all()
    assert (again["c"] == table).all()


def test_other_types_are_refused() -> None:
    with pytest.raises(ValueError, match="of type"):
        write_state({"a": np.array([{}])})
    with pytest.raises(ValueError, match="at most"):
        write_state({str(i): np.zeros(1) for i in range(1_025)})


@pytest.mark.parametrize("seed", range(3))
def test_damage_is_found(seed: int) -> None:
    rng = random.Random(seed)
    data = write_state({"a": np.arange(9), "b": np.ones((2, 3), np.float32)})
    for end in range(len(data)):
        with pytest.raises(CorruptCheckpoint):
            read_state(data[:end])
    for _ in range(300):
        place, bit = rng.randrange(len(data)), 1 << rng.randrange(8)
        damaged = data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :]
        with pytest.raises(CorruptCheckpoint):
            read_state(damaged)
    with pytest.raises(Internal):
        read_state(data + b"\0" * 8)


def sealed(header: bytes, body: bytes = b"") -> bytes:
    """Returns a checkpoint with a correct checksum."""
    body = header + bytes(-len(header) % 8) + body
    sized = struct.pack("<Q", len(header)) + body
    return b"SIRSTA\0\1" + struct.pack("<Q", xxhash.xxh3_64_intdigest(sized)) + sized


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b"3",
        b"{}[]",
        b"[3]",
        b'[["a"]]',
        b'[["a", "<i8", 3]]',
        b'[["a", "<i8", [3]]]',
        b'[["a", "<i8", [-1]]]',
        b'[["a", "<i8", [true]]]',
        b'[["a", "<i8", [1e3]]]',
        b'[["a", "<i8", [1000000000000000000000]]]',
        b'[["a", "<i8", [4611686018427387904, 4611686018427387904]]]',
        b'[["a", "|O", [1]]]',
        b'[["a", "nonsense", [1]]]',
        b"[" + b",".join([b'["a", "<i8", [0]]'] * 1_025) + b"]",
        b" " * ((1 << 18) + 1),
    ],
)
def test_headers_of_no_known_writer_are_refused(header: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        read_state(sealed(header))
