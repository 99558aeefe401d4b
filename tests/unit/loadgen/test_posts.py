"""Posts resemble real ones: places, hours, languages, events."""

from __future__ import annotations

import numpy as np
import orjson
import pytest

from sirocco.loadgen.events import TOPICS, LocalEvent
from sirocco.loadgen.lines import texts_of
from sirocco.loadgen.places import city_objects, load_cities
from sirocco.loadgen.posts import PostsShape, WorldPosts, awake
from sirocco.model.geometry import distance_m
from sirocco.model.objects import concat, validate


@pytest.fixture(scope="module")
def posts() -> WorldPosts:
    return WorldPosts(7, PostsShape(posts_per_s=500.0))


def test_a_seed_gives_the_same_posts() -> None:
    one, two = (concat(list(WorldPosts(9).batches(3_000))) for _ in range(2))
    assert np.array_equal(one.text, two.text)
    assert np.array_equal(one.lat, two.lat)
    assert not np.array_equal(one.lat, concat(list(WorldPosts(10).batches(3_000))).lat)


def test_posts_are_valid_and_numbered(posts: WorldPosts) -> None:
    batch = concat(list(posts.batches(4_096)))
    validate(batch)
    assert np.array_equal(np.diff(batch.ids.astype(np.int64)), np.ones(4_095))
    assert (np.diff(batch.ts) >= 0).all()


def test_languages_are_those_of_the_country(posts: WorldPosts) -> None:
    batch = concat(list(posts.batches(8_192)))
    attributes = [orjson.loads(x) for x in texts_of(batch.attributes, batch.attribute_offsets)]
    assert {one["lang"] for one in attributes if one["country"] == "JP"} == {"ja"}
    assert {one["lang"] for one in attributes if one["country"] == "BR"} == {"pt"}
    texts = texts_of(batch.text, batch.text_offsets)
    scripts = "".join(t for t, a in zip(texts, attributes, strict=True) if a["lang"] == "ru")
    assert any("а" <= character <= "я" for character in scripts)


def test_people_sleep_at_night() -> None:
    three_ms = 1_767_225_600_000 + 3 * 3_600_000
    greenwich, tokyo = awake(np.array([0.0, 139.7]), three_ms)
    assert greenwich < 0.1
    assert tokyo > 0.5


def test_events_gather_posts_around_them() -> None:
    world = WorldPosts(21, PostsShape(posts_per_s=200.0, event_share=0.5, events_per_min=30))
    batch = concat(list(world.batches(20_480)))
    assert len(world.events) > 20
    texts = texts_of(batch.text, batch.text_offsets)
    event = world.events[3]
    about = [row for row, text in enumerate(texts) if set(text.split()) & set(TOPICS[event.topic])]
    away_m = distance_m(event.lon, event.lat, batch.lon[about], batch.lat[about])
    anywhere_m = distance_m(event.lon, event.lat, batch.lon, batch.lat)
    assert np.mean(away_m < 20_000) > 3 * np.mean(anywhere_m < 20_000)


def test_interest_in_an_event_fades() -> None:
    event = LocalEvent(
        topic="fire", city=0, begin_ms=1_000, lon=0.0, lat=0.0, spread_m=500.0, decay_ms=10_000.0
    )
    assert event.interest(999) == 0
    assert event.interest(1_000) == 1
    assert event.interest(11_000) == pytest.approx(np.exp(-1))
    assert not event.is_over(11_000)
    assert event.is_over(61_001)


def test_cities_are_objects_of_many_scripts() -> None:
    cities = load_cities()
    objects = city_objects(cities)
    validate(objects)
    assert len(objects) > 20_000
    assert "동경" in objects.row(cities.find("Tokyo", "JP")).text
    with pytest.raises(KeyError):
        cities.find("Atlantis", "GR")
