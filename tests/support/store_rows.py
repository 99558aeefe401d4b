"""Random stored rows, and their comparison."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence

import numpy as np

from sirocco.index.base.stored_rows import StoredRows
from sirocco.model.objects import MISSING_TS, ObjectColumnsBuilder, ObjectRow


def random_rows(
    rng: random.Random,
    count: int,
    first_seq: int = 0,
    vocabulary: int = 60,
    place: Callable[[random.Random], tuple[float, float]] | None = None,
    known: Sequence[int] | None = None,
) -> StoredRows:
    """Returns rows in log order, in which places, ids, sessions and texts repeat.

    `place` gives places; terms are drawn from `known` if it is given, instead of a vocabulary.
    """
    known = known or hashes(vocabulary)
    builder = ObjectColumnsBuilder()
    has_ts = rng.random() < 0.7
    numbers, sessions, arrivals = [], [], []
    terms: list[int] = []
    counts: list[int] = []
    lengths, ends = [], [0]
    arrival = 1_000_000 + 37 * first_seq
    for seq in range(first_seq, first_seq + count):
        lon, lat = (place or random_place)(rng)
        arrival += rng.choice([0, 0, 1, 50])
        builder.add(
            ObjectRow(
                id=rng.choice([rng.randrange(5), rng.randrange(2**64)]),
                name=rng.choice(["", "", "näme"]),
                lon=lon,
                lat=lat,
                ts=rng.choice([MISSING_TS, arrival, arrival - 5, 7]) if has_ts else MISSING_TS,
                text=rng.choice(["", "some text", "größe"]),
                attributes=rng.choice([b"", b'{"a":1}', b'{"a":2,"b":"x"}']),
            )
        )
        arrivals.append(arrival)
        sessions.append(rng.randrange(3) * 2**62 + 1)
        # Event keys are distinct, and not in log order.
        numbers.append(rng.choice([0, 2**32, 2**40]) + (seq ^ 0x5A))
        own = sorted(rng.sample(known, min(len(known), rng.choice([0, 1, 3, 6, 10]))))
        terms += own
        own_counts = [rng.choice([1, 1, 1, 2, 254, 255, 256, 9_000]) for _ in own]
        counts += own_counts
        lengths.append(sum(own_counts))
        ends.append(len(terms))
    return StoredRows(
        objects=builder.build(),
        sessions=np.array(sessions, np.uint64),
        numbers=np.array(numbers, np.uint64),
        arrivals_ms=np.array(arrivals, np.int64),
        seqs=np.arange(first_seq, first_seq + count),
        lengths=np.array(lengths, np.int32),
        term_offsets=np.array(ends, np.int64),
        terms=np.array(terms, np.uint64),
        counts=np.array(counts, np.uint16),
    )


def hashes(vocabulary: int) -> list[int]:
    """Returns hashes of terms, the least and the greatest possible among them."""
    spread = [(k * 0x9E3779B97F4A7C15) % 2**64 for k in range(1, vocabulary - 1)]
    return [0, 2**64 - 1, *spread]


def random_place(rng: random.Random) -> tuple[float, float]:
    kind = rng.randrange(5)
    if kind == 0:
        return rng.uniform(-180, 180), rng.uniform(-90, 90)
    if kind == 1:
        return rng.choice([-180.0, 180.0, 0.0, 90.0]), rng.choice([-90.0, 90.0, 0.0, 45.0])
    if kind == 2:
        return float(rng.randrange(-180, 181, 5)), float(rng.randrange(-90, 91, 5))
    if kind == 3:
        return rng.choice([-1, 1]) * rng.uniform(179.9, 180), rng.uniform(-5, 5)
    return 13.4 + rng.gauss(0, 0.05), 52.5 + rng.gauss(0, 0.05)


def assert_equal_rows(got: StoredRows, want: StoredRows) -> None:
    """Asserts that all columns are equal, byte for byte."""
    mine, other = got.columns(), want.columns()
    assert mine.keys() == other.keys()
    for name, column in mine.items():
        assert column.dtype == other[name].dtype, name
        assert np.array_equal(column, other[name]), name
    assert {f.name for f in dataclasses.fields(StoredRows)} - {"objects"} <= mine.keys()
