"""Constant publishing and receiving, and its account: lost and doubled matches, and delays.

The oracle computes in advance, for a few thousand patterns, what each object has to match; an
object is a pattern under a number of its own. So the load is cheap to create and to check, and
takes little from the system under load.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeAlias

from sirocco_client import Client, Publisher, Subscription, query_from_json
from sirocco_client.connection.endpoints import preferred_order
from sirocco_client.notifications.receiving import CREDIT

from tests.end_to_end.under_load import QUERIES, WORDS
from tests.oracle import matches

Pair: TypeAlias = tuple[str, int | str]

PATTERNS = 4_000

# Bursts a second of each publisher: an object waits 20 ms for the next one on average, and a burst
# is a request.
BURSTS_PER_S = 25

# Enough objects to reach every slot of the cluster.
SAMPLE_OBJECTS = 600

# Bound of waits, far above every target: a fault that stops everything for good fails.
WAIT_S = 600.0
LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """The size of the load.

    Attributes:
        objects_per_s: Of all publishers together.
        publishers: Sessions, each a thread.
        subscribers: Each with queries of its own, and a thread.
        text_bytes: Each text is filled up to this length with words of no query.
        credit: Matches that each subscriber is sent ahead.
    """

    objects_per_s: int = 3_000
    publishers: int = 2
    subscribers: int = 2
    text_bytes: int = 0
    credit: int = CREDIT


@dataclass(frozen=True, slots=True)
class Account:
    """The result.

    Attributes:
        objects: Published and acknowledged.
        pairs: Matches that had to be reported.
        lost: Of these, never reported.
        surplus: Reported twice, or wrongly.
        longest_wait_s: The longest time from a publish call to its match.
        errors: Raised by publishers and subscribers; there should be none.
    """

    objects: int
    pairs: int
    lost: int
    surplus: int
    longest_wait_s: float
    errors: tuple[str, ...] = ()


class Load:
    """Publishers that do not stop, subscribers, and all that they sent and received.

    Objects have numbers: those of publisher p are p, p + publishers, and so on.

    Args:
        routers, mergers: Their addresses. Publishers begin at the first router, and each merger is
            the first choice of a subscriber: whichever is broken, a client is connected to it.
        name: Of queries and subscribers; it also determines the published objects.
        settings: The size of the load.
    """

    def __init__(
        self,
        routers: Sequence[str],
        mergers: Sequence[str],
        name: str,
        settings: LoadSettings | None = None,
    ) -> None:
        self.name = name
        self.settings = settings or LoadSettings()
        self._rng = random.Random(name)
        self._client = Client(",".join(routers))
        self._patterns = [self._pattern() for _ in range(PATTERNS)]
        self._expected = self._answers()
        self._subscribers = _spread(name, self.settings.subscribers, mergers)
        credit = self.settings.credit
        self._subscriptions = [
            self._client.subscribe(each, credit=credit) for each in self._subscribers
        ]
        # Publisher → patterns of its objects in order, and when each was passed on.
        self._made: list[list[int]] = [[] for _ in range(self.settings.publishers)]
        self._made_s: list[list[float]] = [[] for _ in range(self.settings.publishers)]
        self._publishers = [self._client.publisher() for _ in range(self.settings.publishers)]
        self._received: Counter[Pair] = Counter()
        # When a match arrived, how long its object had waited, and its subscriber.
        self._waits: list[tuple[float, float, int]] = []
        self._holding: set[int] = set()
        self._late_words: list[tuple[str, list[int]]] = []
        self._forgiven: set[int | str] = set()
        self._arrived = threading.Condition()
        # Guards the numbers of objects and the words, which are read together.
        self._numbering = threading.Lock()
        self._seeds = [self._rng.random() for _ in range(self.settings.publishers)]
        self._ending = threading.Event()
        self._errors: list[str] = []
        self._publishing = [
            self._thread(self._publish, number) for number in range(self.settings.publishers)
        ]
        self._receiving = [
            self._thread(self._receive, number) for number in range(self.settings.subscribers)
        ]

    def __enter__(self) -> Self:
        for subscriber, subscription in zip(self._subscribers, self._subscriptions, strict=True):
            subscription.open()
            for query in QUERIES:
                self._register(query, subscriber)
        for thread in (*self._publishing, *self._receiving):
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.set()
        for subscription in self._subscriptions:
            subscription.close()
        self._client.close()

    @property
    def client(self) -> Client:
        """Returns a client for other requests to the cluster."""
        return self._client

    @property
    def errors(self) -> tuple[str, ...]:
        """Errors in threads."""
        return tuple(self._errors)

    @property
    def published(self) -> int:
        """Number of objects passed on so far."""
        return sum(map(len, self._made))

    def waits_s(self, since_s: float, until_s: float, *but: int) -> list[float]:
        """Returns the waits from publish call to match, of matches between two monotonic times.

        Args:
            since_s, until_s: The times.
            but: Subscribers to leave out.
        """
        with self._arrived:
            return [
                w for at, w, number in self._waits if since_s <= at <= until_s and number not in but
            ]

    @contextmanager
    def holding(self, subscriber: int) -> Iterator[None]:
        """Stops a subscriber from reading while the context is open."""
        self._holding.add(subscriber)
        try:
            yield
        finally:
            self._holding.discard(subscriber)

    def register_late(self, word: str) -> float:
        """Registers a query that only later objects can match; returns the seconds taken."""
        begin_s = time.monotonic()
        query = {"id": word, "kind": "range", "mode": "continuous", "text": word}
        self._register(query, self._subscribers[0])
        with self._numbering:
            self._late_words.append((word, [len(made) for made in self._made]))
        return time.monotonic() - begin_s

    def progress(self, *, timeout_s: float = WAIT_S) -> float:
        """Waits for the matches of all publishers' next objects; returns the seconds.

        Raises:
            TimeoutError: They did not arrive.
        """
        begin_s = time.monotonic()
        begin = [len(made) for made in self._made]
        each = SAMPLE_OBJECTS // self.settings.publishers
        while time.monotonic() - begin_s < timeout_s:
            with self._arrived:
                made = [len(made) for made in self._made]
                if all(now >= then + each for now, then in zip(made, begin, strict=True)):
                    break
                self._arrived.wait(LOOK_S)
        wanted: set[Pair] = set()
        for publisher, first in enumerate(begin):
            for i in range(first, first + each):
                if i < len(self._made[publisher]):
                    wanted |= set(self._pairs(publisher, i))
        while time.monotonic() - begin_s < timeout_s:
            with self._arrived:
                wanted = {pair for pair in wanted if not self._received[pair]}
                if not wanted and all(n >= b + each for n, b in zip(made, begin, strict=True)):
                    return time.monotonic() - begin_s
                self._arrived.wait(LOOK_S)
        raise TimeoutError(
            f"{self.name}: {len(wanted)} matches such as {next(iter(wanted), None)} missing after "
            f"{timeout_s:.0f} s; published {made}, from {begin}; {self.errors}"
        )

    def forgive(self, objects: Iterable[int]) -> None:
        """Expects no more matches of some objects: they went to `dead-letters`."""
        self._forgiven.update(objects)

    def run(self, seconds: float) -> None:
        """Lets the load run for some time."""
        self._ending.wait(seconds)

    def finish(self) -> Account:
        """Ends the publishers, waits for all expected matches, and counts."""
        self._ending.set()
        for thread in self._publishing:
            thread.join(WAIT_S)
        for publisher in self._publishers:
            result = publisher.flush(WAIT_S)
            ends = self._client.await_processed(result.position_token, timeout_s=WAIT_S)
            for subscription in self._subscriptions:
                _await_cursor(subscription, ends)
        for subscription in self._subscriptions:
            subscription.close()
        for thread in self._receiving:
            thread.join(WAIT_S)
        self._unregister()
        expected: Counter[Pair] = Counter()
        for number, made in enumerate(self._made):
            for i in range(len(made)):
                expected.update(self._pairs(number, i))
        received = self._received
        for pair in [pair for pair in expected | received if pair[1] in self._forgiven]:
            del expected[pair], received[pair]
        return Account(
            self.published,
            expected.total(),
            (expected - received).total(),
            (received - expected).total(),
            max((wait for _, wait, _ in self._waits), default=0.0),
            self.errors,
        )

    def _thread(self, action: Callable[[Any], None], argument: object) -> threading.Thread:
        def guarded() -> None:
            try:
                action(argument)
            except Exception as failure:
                self._errors.append(repr(failure))

        return threading.Thread(target=guarded, daemon=True)

    def _publish(self, number: int) -> None:
        publisher: Publisher = self._publishers[number]
        count = self.settings.publishers
        burst = max(1, self.settings.objects_per_s // BURSTS_PER_S // count)
        rng = random.Random(self._seeds[number])
        made, made_s = self._made[number], self._made_s[number]
        due_s = time.monotonic()
        while not self._ending.is_set():
            chosen = [rng.randrange(PATTERNS) for _ in range(burst)]
            with self._numbering:
                first = len(made)
                words = "".join(f" {word}" for word, _ in self._late_words)
                made_s.extend([time.monotonic()] * burst)
                made.extend(chosen)
            publisher.publish_many(
                [
                    {
                        **self._patterns[pattern],
                        "id": (first + i) * count + number,
                        "text": self._patterns[pattern]["text"] + words,
                    }
                    for i, pattern in enumerate(chosen)
                ]
            )
            # Objects delayed by an outage are made up for, but not all at once.
            due_s = max(due_s + 1 / BURSTS_PER_S, time.monotonic() - 1.0)
            self._ending.wait(max(0.0, due_s - time.monotonic()))

    def _receive(self, number: int) -> None:
        count = self.settings.publishers
        for batch in self._subscriptions[number].batches():
            while number in self._holding and not self._ending.wait(LOOK_S):
                pass
            now_s = time.monotonic()
            pairs = list(batch.pairs())
            waits = [
                (now_s, now_s - self._made_s[int(key) % count][int(key) // count], number)
                for _, key in pairs
            ]
            with self._arrived:
                self._received.update(pairs)
                self._waits += waits
                self._arrived.notify_all()

    def _register(self, query: dict[str, Any], subscriber: str) -> None:
        named = {**query, "id": f"{query['id']}-{subscriber}"}
        self._client.register(query_from_json(named, subscriber))

    def _unregister(self) -> None:
        names = [f"{query['id']}-{each}" for each in self._subscribers for query in QUERIES]
        names += [f"{word}-{self._subscribers[0]}" for word, _ in self._late_words]
        for name in names:
            self._client.unregister(name)

    def _pairs(self, publisher: int, i: int) -> list[Pair]:
        """Returns the matches that have to be reported of one object."""
        key = i * self.settings.publishers + publisher
        queries = self._expected[self._made[publisher][i]]
        pairs: list[Pair] = [
            (f"{query}-{subscriber}", key) for subscriber in self._subscribers for query in queries
        ]
        for word, begin in self._late_words:
            if i >= begin[publisher]:
                pairs.append((f"{word}-{self._subscribers[0]}", key))
        return pairs

    def _pattern(self) -> dict[str, Any]:
        rng = self._rng
        text = " ".join(rng.choices(WORDS, k=rng.randint(1, 6)))
        filler = max(0, self.settings.text_bytes - len(text))
        return {
            "lon": rng.uniform(-180, 180),
            "lat": rng.uniform(-90, 90),
            "text": text + " filler" * (filler // 7),
            "size": rng.randint(0, 9),
            "status": rng.choice(["open", "closed"]),
        }

    def _answers(self) -> list[tuple[str, ...]]:
        """Returns for each pattern the queries that it satisfies, by the oracle."""
        found: list[list[str]] = [[] for _ in self._patterns]
        numbered = [{**pattern, "id": i} for i, pattern in enumerate(self._patterns)]
        for query, pattern in matches(numbered, QUERIES):
            found[int(pattern)].append(query)
        return [tuple(each) for each in found]


def _spread(name: str, count: int, mergers: Sequence[str]) -> list[str]:
    """Returns names of subscribers whose first choices are the mergers in turn."""
    names = (f"{name}-s{number}" for number in itertools.count())
    wanted = itertools.cycle(mergers)
    return [
        next(each for each in names if preferred_order(mergers, each)[0] == merger)
        for merger in itertools.islice(wanted, count)
    ]


def _await_cursor(subscription: Subscription, ends: tuple[str, ...]) -> None:
    """Waits until the subscriber has everything before the end of its Kafka partition."""
    deadline_s = time.monotonic() + WAIT_S
    while time.monotonic() < deadline_s:
        partition, _, offset = subscription.cursor.partition(".")
        end = next((end for end in ends if end.startswith(f"{partition}.")), "")
        if end and int(offset) >= int(end.partition(".")[2]):
            return
        time.sleep(LOOK_S)
    raise TimeoutError(f"a subscriber stands at {subscription.cursor}, the ends are {ends}")
