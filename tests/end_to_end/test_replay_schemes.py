"""Every scheme gives exact results for all kinds of queries: real data, moving vehicles.

Whether a scheme splits space, text, both, or copies the queries: users get the same results.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sirocco.local.kafka import KafkaServer
from sirocco.local.redis import RedisServer
from sirocco.model.objects import ObjectColumnsBuilder, parse_object
from sirocco.model.text import analyse_batch
from sirocco.schemes.builders.scheme import SCHEMES
from sirocco.schemes.workload.sample import Sample, no_queries
from tests.end_to_end.moving_vehicles import moving_vehicles
from tests.end_to_end.random_queries import random_queries, random_queries_of_all_kinds
from tests.end_to_end.replayed import agree, finish, replay, start, write_lines
from tests.end_to_end.test_replay_kinds import BUSHFIRES, SEED
from tests.oracle import read_members

# Each of them splits the vocabulary in a different way.
TEXT_SCHEMES = ("kdt-tree", "text-frequency", "replicated")
SHAPE = ("--slots", 6, "--leaves", 18)


def _workload(directory: Path, objects: list[dict[str, Any]], **options: Any) -> Any:
    queries = random_queries(objects, 120, SEED, lifetimes=True)
    queries += random_queries_of_all_kinds(objects, 90, SEED, **options)
    write_lines(directory / "objects", objects)
    write_lines(directory / "queries", queries)
    return objects, queries


@pytest.mark.parametrize("scheme", SCHEMES)
def test_real_updates_of_bush_fires(tmp_path: Path, scheme: str) -> None:
    if not BUSHFIRES.exists():
        pytest.skip(f"{BUSHFIRES} is not there: it belongs to no clone")
    objects, queries = _workload(tmp_path, read_members(BUSHFIRES)[:1_500])
    agree(replay(tmp_path, 4, "--scheme", scheme, *SHAPE), objects, queries, seed=SEED)


@pytest.mark.parametrize("scheme", TEXT_SCHEMES)
def test_vehicles_that_are_followed(tmp_path: Path, scheme: str) -> None:
    objects, queries = _workload(tmp_path, moving_vehicles(1_500, SEED), track="vehicle")
    options = ("--scheme", scheme, "--routers", 2, "--mergers", 2, *SHAPE)
    agree(replay(tmp_path, 4, *options), objects, queries, seed=SEED)


def test_places_where_the_hybrid_cuts_text(tmp_path: Path) -> None:
    # init: the texts of three stops cannot be separated by space.
    stops = [(8.54, 47.38), (-70.6, -33.4), (151.2, -33.9)]
    objects = moving_vehicles(1_500, SEED)
    for number, one in enumerate(objects):
        one["lon"], one["lat"] = stops[number % 3]
    builder = ObjectColumnsBuilder()
    for one in objects:
        builder.add(parse_object(one))
    columns = builder.build()
    terms = analyse_batch(columns.text, columns.text_offsets)
    keys = np.arange(len(columns), dtype=np.uint64)
    sample = Sample(columns.lon, columns.lat, terms.offsets, terms.terms, keys, no_queries())
    assert SCHEMES["kdt-tree"].build(sample, 18, 6).keyword_nodes

    # test and check
    objects, queries = _workload(tmp_path, objects)
    agree(replay(tmp_path, 4, "--scheme", "kdt-tree", *SHAPE), objects, queries, seed=SEED)


@pytest.mark.kafka
def test_a_text_cut_on_kafka(
    tmp_path: Path, kafka_server: KafkaServer, redis_server: RedisServer
) -> None:
    objects, queries = _workload(tmp_path, moving_vehicles(1_500, SEED), track="vehicle")
    servers = ("--kafka", kafka_server.address, "--redis", redis_server.url)
    done = finish(tmp_path, start(tmp_path, 2, *servers, "--scheme", "text-frequency", *SHAPE))
    agree(done, objects, queries, seed=SEED)
