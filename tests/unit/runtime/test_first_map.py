"""The first map of a new cluster, from a sample file or without one."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sirocco.model.errors import InvalidArgument
from sirocco.model.text import term_hash
from sirocco.runtime.first_map import first_map, read_sample
from sirocco.runtime.settings import ClusterSettings
from sirocco.schemes.map.map_bytes import from_bytes

SETTINGS = ClusterSettings(slots=4, leaves=16)


def line(number: int, lon: float = 0.0, lat: float = 0.0, text: str = "coffee") -> bytes:
    return json.dumps({"id": number, "lon": lon, "lat": lat, "text": text}).encode() + b"\n"


def crowded(seed: int = 5) -> list[bytes]:
    """Returns objects nearly all in one small place."""
    rng = np.random.default_rng(seed)
    lons, lats = rng.normal(13.4, 0.2, 2_000), rng.normal(52.5, 0.2, 2_000)
    return [
        line(i, lon, lat)
        for i, (lon, lat) in enumerate(zip(lons.tolist(), lats.tolist(), strict=True))
    ]


def test_without_a_sample_the_map_is_even() -> None:
    made = from_bytes(first_map(SETTINGS, ""))
    assert (made.version, made.scheme, made.slots) == (1, "qt-tree", 4)
    assert len(made.leaves) == 16
    assert np.bincount(made.slot_of_leaf).tolist() == [4] * 4
    sizes = [(east - west) * (north - south) for west, south, east, north in boxes(made)]
    assert max(sizes) == pytest.approx(min(sizes))


def boxes(made: object) -> list[tuple[float, float, float, float]]:
    return [leaf.box for leaf in made.leaves]  # type: ignore[attr-defined]


def test_a_sample_makes_small_leaves_where_much_happens(tmp_path: Path) -> None:
    path = tmp_path / "sample.jsonl"
    path.write_bytes(b"".join(crowded()))
    made = from_bytes(first_map(SETTINGS, str(path)))
    spatial = [leaf.box for leaf in made.leaves if leaf.within is None]
    sizes = {box: (box[2] - box[0]) * (box[3] - box[1]) for box in spatial}
    smallest = min(sizes, key=lambda box: sizes[box])
    assert smallest[0] - 2 <= 13.4 <= smallest[2] + 2
    assert smallest[1] - 2 <= 52.5 <= smallest[3] + 2
    assert max(sizes.values()) > 50 * min(sizes.values())


def test_equal_samples_make_equal_maps_packed_or_not(tmp_path: Path) -> None:
    plain, packed = tmp_path / "sample.jsonl", tmp_path / "sample.jsonl.gz"
    plain.write_bytes(b"".join(crowded()))
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert first_map(SETTINGS, str(plain)) == first_map(SETTINGS, str(packed))


def test_lines_that_are_no_objects_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "sample.jsonl"
    good = [line(1, 1.0), line(2, 2.0)]
    bad = [b"\n", b"{\n", b"[1]\n", b"\xff\xfe\n", line(3, 999.0), b'{"id": 4}\n']
    path.write_bytes(good[0] + b"".join(bad) + good[1].rstrip())
    assert read_sample(path).lon.tolist() == [1.0, 2.0]


def test_only_so_many_are_read(tmp_path: Path) -> None:
    path = tmp_path / "sample.jsonl"
    path.write_bytes(b"".join(line(i, float(i)) for i in range(10)))
    assert read_sample(path, objects_max=3).lon.tolist() == [0.0, 1.0, 2.0]


def test_a_line_without_an_end_takes_no_memory(tmp_path: Path) -> None:
    """Some kilobytes of gzip hold a line of gigabytes."""
    path = tmp_path / "sample.jsonl"
    long = b'{"id": 2, "lon": 2, "lat": 2, "text": "' + b"a" * (64 << 20) + b'"}\n'
    path.write_bytes(gzip.compress(line(1, 1.0) + long + line(3, 3.0), 1))
    tracemalloc.start()
    assert read_sample(path).lon.tolist() == [1.0, 3.0]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


def test_only_so_many_bytes_are_read(tmp_path: Path) -> None:
    path = tmp_path / "sample.jsonl"
    path.write_bytes(line(1, 1.0) + b"x" * 500 + b"\n" + line(2, 2.0))
    assert read_sample(path, bytes_max=500).lon.tolist() == [1.0]


def test_a_sample_without_any_object_counts_as_none(tmp_path: Path) -> None:
    path = tmp_path / "sample.jsonl"
    path.write_bytes(b"nothing of use\n")
    assert first_map(SETTINGS, str(path)) == first_map(SETTINGS, "")


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(InvalidArgument) as caught:
        first_map(replace(SETTINGS, scheme="by-moonlight"), "")
    assert caught.value.field == "scheme"


@pytest.mark.parametrize("name", ["missing.jsonl", "missing.jsonl.gz", "."])
def test_a_file_that_cannot_be_read_is_an_error_of_the_system(name: str, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=name if name != "." else str(tmp_path)):
        first_map(SETTINGS, str(tmp_path / name))


def test_without_a_store_the_map_knows_how_frequent_terms_are(tmp_path: Path) -> None:
    path = tmp_path / "sample.jsonl"
    path.write_bytes(line(1, text="free coffee") + line(2, text="coffee"))
    assert not len(from_bytes(first_map(SETTINGS, str(path))).frequent_terms)
    made = from_bytes(first_map(replace(SETTINGS, store=False), str(path)))
    known = dict(zip(made.frequent_terms.tolist(), made.frequencies.tolist(), strict=True))
    assert known == {term_hash("free"): 1, term_hash("coffee"): 2}


@pytest.mark.parametrize("name", ["sample.jsonl", "sample.jsonl.gz"])
def test_a_sample_is_unpacked_by_its_content_as_far_as_it_is_whole(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    content = b"".join(line(number) for number in range(2_000))
    path.write_bytes(content)
    assert len(read_sample(path)) == 2_000
    path.write_bytes(gzip.compress(content))
    assert len(read_sample(path)) == 2_000
    path.write_bytes(gzip.compress(content)[:-1_000])
    assert 100 < len(read_sample(path)) < 2_000
