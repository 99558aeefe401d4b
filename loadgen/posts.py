"""World-wide posts: people write where they live, when they are awake, in their languages.

Places follow the population of real cities, times follow day and night by longitude, texts the word
frequencies of the languages spoken there (`wordfreq`). Sometimes a local event causes posts about
one topic in one place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice

import numpy as np
import orjson
import wordfreq
from numpy.typing import NDArray

from sirocco.loadgen.events import TOPICS, LocalEvent
from sirocco.loadgen.phrases import Dictionary, WeightedDraw, offsets_of
from sirocco.loadgen.places import LANGUAGES, Cities, load_cities
from sirocco.model.objects import Bytes, ObjectColumns, Offsets, pack_bytes, take_bytes

# Posts drawn at a time; part of a seed's meaning. Few enough that the hour of the day and the
# events hardly change within.
_CHUNK_ROWS = 1_024

_WORDS_PER_LANGUAGE = 8_000
_METRES_PER_DEGREE = 111_195.0
_DAY_MS = 86_400_000
_TOPIC_WORDS = 3


@dataclass(frozen=True, slots=True)
class PostsShape:
    """Figures of the stream.

    Attributes:
        posts_per_s: Posts a second of event time, which gives the event times.
        words_mean: Ordinary words a post, Poisson, at least one.
        event_share: Share of posts about a local event, while there is one.
        events_per_min: New events a minute of event time.
        event_decay_s: Mean time in which the interest in an event falls to 1/e.
        name_share: Share of posts that name their city.
    """

    posts_per_s: float = 2_000.0
    words_mean: float = 8.0
    event_share: float = 0.15
    events_per_min: float = 30.0
    event_decay_s: float = 20.0
    name_share: float = 0.25


class WorldPosts:
    """A stream of posts; the same for the same seed, shape and start.

    Args:
        seed: For all random draws.
        shape: Figures of the stream.
        start_ms: Event time of the first post, epoch ms.
    """

    def __init__(
        self, seed: int, shape: PostsShape | None = None, *, start_ms: int = 1_767_225_600_000
    ) -> None:
        self.shape = shape or PostsShape()
        self.cities = load_cities()
        self.events: list[LocalEvent] = []
        self._start_ms = start_ms
        self._generator = np.random.default_rng(seed)
        self._words = _lexicon()
        self._halves = _attribute_halves(self.cities)
        self._live: list[LocalEvent] = []
        self._number = 0

    def batches(self, count: int, batch_rows: int = _CHUNK_ROWS) -> Iterator[ObjectColumns]:
        """Yields batches of posts, ids from 1; a second call continues after the first.

        Args:
            count: Posts in all; rounded up to whole chunks in what the stream consumes.
            batch_rows: Greatest number of posts of a batch.
        """
        done = 0
        while done < count:
            chunk = self._chunk()
            kept = min(count - done, len(chunk))
            for start in range(0, kept, batch_rows):
                yield chunk.slice(start, min(start + batch_rows, kept))
            done += kept

    def _chunk(self) -> ObjectColumns:
        rows = _CHUNK_ROWS
        numbers = np.arange(self._number + 1, self._number + rows + 1, dtype=np.uint64)
        ts = self._start_ms + (
            (numbers.astype(np.float64) - 1) * (1000 / self.shape.posts_per_s)
        ).astype(np.int64)
        self._number += rows
        city = self._draw_cities(int(ts[0]), rows)
        lon, lat = self._scatter(city)
        topic_words = self._draw_events(ts, city, lon, lat)
        language = self._draw_languages(city)
        text, text_offsets = self._texts(city, language, topic_words)
        attributes, attribute_offsets = self._attributes(city, language)
        return ObjectColumns(
            ids=numbers,
            names=np.empty(0, np.uint8),
            name_offsets=np.zeros(rows + 1, np.int64),
            lon=lon,
            lat=lat,
            ts=ts,
            text=text,
            text_offsets=text_offsets,
            attributes=attributes,
            attribute_offsets=attribute_offsets,
        )

    def _attributes(
        self, city: NDArray[np.int64], language: NDArray[np.int64]
    ) -> tuple[Bytes, Offsets]:
        halves = np.column_stack([city, len(self.cities) + language]).ravel()
        data, offsets = take_bytes(*self._halves, halves)
        return data, offsets[::2]

    def _draw_cities(self, at_ms: int, rows: int) -> NDArray[np.int64]:
        weights = self.cities.population * awake(self.cities.lon, at_ms)
        sums = np.cumsum(weights)
        needles = self._generator.random(rows) * sums[-1]
        found = np.searchsorted(sums, needles, side="right")
        return np.asarray(np.minimum(found, len(sums) - 1), np.int64)

    def _scatter(self, city: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns places around the middles of cities: a large city is wide."""
        spread_m = 1_500 * np.sqrt(np.maximum(self.cities.population[city], 1e4) / 1e5)
        return self._around(self.cities.lon[city], self.cities.lat[city], spread_m)

    def _around(
        self, lon: NDArray[np.float64], lat: NDArray[np.float64], spread_m: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        north, east = self._generator.standard_normal((2, len(lon))) * (
            spread_m / _METRES_PER_DEGREE
        )
        lat = np.clip(lat + north, -89.9, 89.9)
        lon = (lon + east / np.cos(np.radians(lat)) + 180) % 360 - 180
        return np.round(lon, 6), np.round(lat, 6)

    def _draw_events(
        self,
        ts: NDArray[np.int64],
        city: NDArray[np.int64],
        lon: NDArray[np.float64],
        lat: NDArray[np.float64],
    ) -> dict[int, list[int]]:
        """Moves some posts to events; returns the topic words of each such row."""
        self._begin_events(ts, city, lon, lat)
        if not self._live:
            return {}
        interest = np.array([event.interest(float(ts[-1])) for event in self._live])
        if interest.sum() <= 0:
            return {}
        rows = np.flatnonzero(self._generator.random(len(ts)) < self.shape.event_share)
        chosen = WeightedDraw(interest).draw(self._generator, len(rows))
        events = [self._live[number] for number in chosen.tolist()]
        city[rows] = [event.city for event in events]
        lon[rows], lat[rows] = self._around(
            np.array([event.lon for event in events]),
            np.array([event.lat for event in events]),
            np.array([event.spread_m for event in events]),
        )
        picks = self._generator.random((len(rows), _TOPIC_WORDS))
        words = {}
        for row, event, pick in zip(rows.tolist(), events, picks.tolist(), strict=True):
            topic = TOPICS[event.topic]
            # The square prefers the first words of a topic.
            numbers = {int(share * share * len(topic)) for share in pick}
            words[row] = [self._words.topic_word[topic[number]] for number in sorted(numbers)]
        return words

    def _begin_events(
        self,
        ts: NDArray[np.int64],
        city: NDArray[np.int64],
        lon: NDArray[np.float64],
        lat: NDArray[np.float64],
    ) -> None:
        begin_ms = int(ts[0])
        self._live = [event for event in self._live if not event.is_over(begin_ms)]
        decay_ms = 1_000 * self.shape.event_decay_s
        minutes = len(ts) / self.shape.posts_per_s / 60
        for _ in range(self._generator.poisson(self.shape.events_per_min * minutes)):
            row = int(self._generator.integers(len(ts)))
            topics = list(TOPICS)
            event = LocalEvent(
                topic=topics[int(self._generator.integers(len(topics)))],
                city=int(city[row]),
                begin_ms=begin_ms,
                lon=float(lon[row]),
                lat=float(lat[row]),
                spread_m=float(self._generator.uniform(300, 4_000)),
                decay_ms=float(decay_ms * self._generator.uniform(0.5, 1.5)),
            )
            self._live.append(event)
            self.events.append(event)

    def _draw_languages(self, city: NDArray[np.int64]) -> NDArray[np.int64]:
        shares = self.cities.language_shares[city]
        needles = self._generator.random(len(city))[:, None]
        return np.asarray(np.argmax(shares > needles, axis=1), np.int64)

    def _texts(
        self,
        city: NDArray[np.int64],
        language: NDArray[np.int64],
        topic_words: dict[int, list[int]],
    ) -> tuple[Bytes, Offsets]:
        """Returns ordinary words of the language, preceded by words of the topic, then the city."""
        rows = len(city)
        counts = np.maximum(1, self._generator.poisson(self.shape.words_mean, rows))
        needles = np.repeat(language, counts) + self._generator.random(int(counts.sum()))
        words = np.searchsorted(self._words.shares, needles, side="right")
        ends = offsets_of(counts)
        topics = [row for row in sorted(topic_words) for _ in topic_words[row]]
        extra = [word for row in sorted(topic_words) for word in topic_words[row]]
        words = np.insert(words, ends[topics], extra)
        counts += np.bincount(topics, minlength=rows) if topics else 0
        ends = offsets_of(counts)
        named = np.flatnonzero(self._generator.random(rows) < self.shape.name_share)
        words = np.insert(words, ends[1:][named], self._words.first_city + city[named])
        counts[named] += 1
        return self._words.dictionary.join(words, offsets_of(counts))


def awake(lon: NDArray[np.float64], at_ms: int) -> NDArray[np.float64]:
    """Returns how much people write at a time, by longitude: 1 in the evening, 0.08 at night.

    Args:
        lon: f8[n], degrees.
        at_ms: Epoch ms.
    """
    hour = (at_ms % _DAY_MS / 3_600_000 + lon / 15) % 24
    evening = np.exp(-(((hour - 20 + 12) % 24 - 12) ** 2) / 18)
    noon = 0.7 * np.exp(-(((hour - 12 + 12) % 24 - 12) ** 2) / 18)
    return np.asarray(np.maximum(0.08, np.maximum(evening, noon)))


@dataclass(frozen=True, slots=True, eq=False)
class _Lexicon:
    """Words of all languages.

    Attributes:
        dictionary: All words, language by language, then the words of topics, then the cities.
        shares: f8[w], cumulative; the words of language i fill [i, i + 1].
        topic_word: Number of each word of a topic.
        first_city: Number of the word for the first city.
    """

    dictionary: Dictionary
    shares: NDArray[np.float64]
    topic_word: dict[str, int]
    first_city: int


@cache
def _lexicon() -> _Lexicon:
    words: list[str] = []
    shares: list[NDArray[np.float64]] = []
    for number, language in enumerate(LANGUAGES):
        # In order of decreasing frequency, as in the package.
        found = wordfreq.get_frequency_dict(language, "small").items()
        kept = list(islice(found, _WORDS_PER_LANGUAGE))
        words.extend(word for word, _ in kept)
        sums = np.cumsum([share for _, share in kept])
        sums *= 1 / sums[-1]
        sums[-1] = 1.0
        shares.append(number + sums)
    topics = sorted({word for topic in TOPICS.values() for word in topic})
    numbers = {word: len(words) + place for place, word in enumerate(topics)}
    names = [f"#{name.replace(' ', '')}" for name in load_cities().names]
    dictionary = Dictionary([*words, *topics, *names])
    return _Lexicon(dictionary, np.concatenate(shares), numbers, len(words) + len(topics))


def _attribute_halves(cities: Cities) -> tuple[Bytes, Offsets]:
    """Returns the attributes of a post: first halves by city, then second halves by language."""
    first = [
        orjson.dumps({"place": name, "country": country})[:-1]
        for name, country in zip(cities.names, cities.countries, strict=True)
    ]
    return pack_bytes([*first, *(b',"lang":"%s"}' % language.encode() for language in LANGUAGES)])
