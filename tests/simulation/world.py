"""A small random world: the map, the publishers' objects, the life of each query."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from sirocco.model.objects import ObjectColumns, ObjectColumnsBuilder, parse_object
from sirocco.model.text import tokens_of_batch
from sirocco.protocol.contract.messages import NO_PAST
from sirocco.schemes.builders.scheme import scheme_named
from sirocco.schemes.map.map_bytes import to_bytes
from sirocco.schemes.workload.sample import Sample, no_queries
from tests.collisions import PAIRS
from tests.simulation.keyword_map import quartered_map
from tests.simulation.limits import limits_of
from tests.simulation.services import Shape

if TYPE_CHECKING:
    from tests.simulation.faults import Profile

WORDS = ["coffee", "free", "pizza", "rain", "fire", "drill", "museum", "louvre", "tram", "night"]

# Some are others but for accents, capitals and strokes.
ACCENTED_WORDS = ["café", "cafe", "CAFÉ", "łódź", "Lodz", "zürich", "zurich", "pizza", "rain"]

# For worlds where objects that no query needs are held back: no query asks for most words.
MANY_WORDS = [*WORDS, *(f"word{number}" for number in range(30))]

Members = dict[str, Any]

# Queries of one world that are evaluated at steps: each slot searches for each of them about every
# second, which dominates the run time.
STEP_QUERIES_MAX = 5

# Words of worlds in which queries ask for two at once: enough objects hold both.
FEW_WORDS = 4

# Schemes that have a balancer.
BALANCED = ("qt-tree", "a-grid", "swarm", "kdt-tree")

# Share of the objects from around one place, if there are hot spots.
HOT = 0.8


@dataclass(frozen=True, slots=True)
class Act:
    """One step in the life of a query.

    Attributes:
        action: register, update or unregister.
        members: the query in JSON form; None for a removal.
        subscriber: receives the notifications.
        after_ms: pause since the step before.
        past_ms: how much history it asks for.
        starts_in_ms: delay until its lifetime begins; None if not given.
    """

    action: str
    members: Members | None
    subscriber: str
    after_ms: float
    past_ms: int = NO_PAST
    starts_in_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Stream:
    """The objects of one publisher: number n is row n - 1.

    Attributes:
        times_ms: when each object is created, ascending.
        refused: numbers that the front refuses.
        gives_up_ms: when the publisher stops for good.
    """

    session: int
    members: list[Members]
    columns: ObjectColumns
    times_ms: list[float]
    refused: frozenset[int]
    gives_up_ms: float


@dataclass(frozen=True, slots=True)
class World:
    """Everything that happens, apart from faults."""

    shape: Shape
    streams: list[Stream]
    life_starts: dict[str, list[Act]]
    duration_ms: float


def make_world(seed: int, profile: Profile) -> World:
    """Draws a world under a profile."""
    duration_ms, churn = profile.duration_ms, profile.churn
    dice = Random(f"world {seed}")
    kinds = Kinds(
        is_mixed=dice.random() < profile.mixed,
        drawn=profile.kinds,
        rewords=profile.rewords,
        removes=profile.removes,
        joint=profile.few_words,
        patterned=profile.patterned,
        waiting=profile.waiting,
        folded=profile.folded,
    )
    if profile.few_words:
        kinds.words = WORDS[:FEW_WORDS]
    elif profile.folded:
        kinds.words = ACCENTED_WORDS
    elif not kinds.is_mixed and Random(f"store {seed}").random() < profile.storeless:
        # Queries of other kinds than range need the store.
        kinds.words, kinds.textless = MANY_WORDS, 0.05
    slots = dice.randint(2, 6) + (2 if profile.balance_ms is not None else 0)
    scheme = dice.choice(["qt-tree", "qt-tree", "uniform-grid"])
    first_map = _keyword_map(seed, slots) or built_map(scheme, slots, dice.randrange(4))
    if profile.balance_ms is not None:
        balanced = Random(f"balanced {seed}")
        first_map = built_map(balanced.choice(BALANCED), slots, balanced.randrange(4))
    shape = Shape(
        slots=slots,
        intake=dice.randint(1, 3),
        registry=dice.randint(1, 2),
        partials=dice.randint(1, 2),
        first_map=first_map,
        store=kinds.words is not MANY_WORDS,
        balances=profile.balance_ms is not None,
        limits=limits_of(seed, profile.checkpoints_ms),
    )
    objects = dice.randint(80, 300) + (150 if profile.is_hot else 0)
    publishers = dice.randint(1, 4)
    streams = [
        _stream(dice, number, max(1, objects // publishers), duration_ms, kinds.words)
        for number in range(publishers)
    ]
    if profile.is_hot:
        streams = [_heated(stream, Random(f"hot {seed}"), duration_ms) for stream in streams]
    names = [f"q-{n}" for n in range(dice.randint(*profile.queries))]
    if profile.rivals:
        names[: len(PAIRS)] = [one for one, _ in PAIRS[: len(names)]]
    life_starts = {name: _life(dice, name, duration_ms, churn, kinds) for name in names}
    if profile.begins:
        starts = Random(f"starts {seed}")
        life_starts = {
            name: _begun(life, starts, profile.begins) for name, life in life_starts.items()
        }
    return World(shape, streams, life_starts, duration_ms)


def _keyword_map(seed: int, slots: int) -> bytes | None:
    """Returns a map that splits the vocabulary, in some worlds; None in the others."""
    dice = Random(f"keywords {seed}")
    scheme = dice.choice([None, None, None, "quarters", "quarters", "text-frequency", "replicated"])
    if scheme == "quarters":
        return quartered_map(tuple(WORDS), slots, dice.randrange(8))
    return None if scheme is None else built_map(scheme, slots, dice.randrange(4))


@dataclass(slots=True, kw_only=True)
class Kinds:
    """The kinds of a world's queries.

    Attributes:
        is_mixed: whether there are other kinds than range.
        steps: how many more queries may be evaluated at steps, which takes time.
        words: the words of objects and queries.
        textless: share of the range queries that accept any text.
        drawn: the kinds to draw from.
        rewords: share of the changed queries that ask for other words.
        removes: whether queries are removed for good soon after their registration.
        joint: whether queries ask for two words at once.
        patterned: share of the texts that are phrases and beginnings of words.
        folded: share of the texts to which accents do not matter.
        waiting: share of the queries with tracked values that have `dwell`, and `leave_after`.
    """

    is_mixed: bool
    steps: int = STEP_QUERIES_MAX
    words: list[str] = field(default_factory=lambda: WORDS)
    textless: float = 0.3
    patterned: float = 0.0
    folded: float = 0.0
    waiting: float = 0.0
    drawn: tuple[str, ...] = ("range",)
    rewords: float = 1.0
    removes: bool = False
    joint: bool = False

    def next(self, dice: Random) -> str:
        """Returns the kind of the next query."""
        if not self.is_mixed:
            return "range"
        kind = dice.choice(self.drawn)
        if kind in ("terms", "ranked"):
            self.steps -= 1
            return kind if self.steps >= 0 else "knn"
        return kind


# For callers that do not choose kinds.
ANY_KINDS = Kinds(is_mixed=True)


@cache
def built_map(scheme: str, slots: int, seed: int) -> bytes:
    """Returns a map built from a random sample."""
    dice = Random(f"map {seed}")
    builder = ObjectColumnsBuilder()
    for number in range(200):
        builder.add(parse_object(_json(_object(dice, number))))
    objects = builder.build()
    terms = tokens_of_batch(objects.text, objects.text_offsets)
    keys = np.arange(len(objects), dtype=np.uint64)
    sample = Sample(objects.lon, objects.lat, terms.offsets, terms.terms, keys, no_queries())
    return to_bytes(scheme_named(scheme).build(sample, 2 * slots, slots))


def _stream(dice: Random, number: int, count: int, duration_ms: float, words: list[str]) -> Stream:
    members = [_object(dice, 1_000 * number + row, words) for row in range(count)]
    builder = ObjectColumnsBuilder()
    for one in members:
        builder.add(parse_object(_json(one)))
    begin_ms = dice.uniform(500, duration_ms / 2)
    # In bursts: batches of several objects, and idle times between them.
    times_ms: list[float] = []
    while len(times_ms) < count:
        time_ms = dice.uniform(begin_ms, duration_ms)
        times_ms += [time_ms] * min(dice.randint(1, 12), count - len(times_ms))
    refused = frozenset(n for n in range(1, count + 1) if dice.random() < 0.03)
    gives_up_ms = dice.uniform(begin_ms, duration_ms) if dice.random() < 0.15 else float("inf")
    session = dice.getrandbits(64)
    return Stream(session, members, builder.build(), sorted(times_ms), refused, gives_up_ms)


def _heated(stream: Stream, dice: Random, duration_ms: float) -> Stream:
    """Moves most objects to around one place, and after a while around another."""
    places = [(dice.uniform(-9, 9), dice.uniform(-9, 9)) for _ in range(4)]
    members = []
    for one, time_ms in zip(stream.members, stream.times_ms, strict=True):
        lon, lat = places[int(len(places) * time_ms / duration_ms) % len(places)]
        if dice.random() < HOT:
            near = {"lon": dice.gauss(lon, 0.7), "lat": dice.gauss(lat, 0.7)}
            members.append({**one, **near})
        else:
            members.append(one)
    builder = ObjectColumnsBuilder()
    for one in members:
        builder.add(parse_object(_json(one)))
    return replace(stream, members=members, columns=builder.build())


def _life(dice: Random, query_id: str, duration_ms: float, churn: int, kinds: Kinds) -> list[Act]:
    subscriber = f"s-{dice.randrange(4)}"
    mean_ms = duration_ms / 4
    kind = kinds.next(dice)
    asks_past = kinds.is_mixed and kind != "tracked" and dice.random() < 0.3
    # A client that registers again what has ended would receive the past again.
    has_ttl = not asks_past and dice.random() < 0.25
    query = random_query(dice, query_id, kind, has_ttl=has_ttl, kinds=kinds)
    life = [Act("register", query, subscriber, dice.uniform(0, mean_ms))]
    if asks_past:
        # Late enough that there is a past.
        past_ms = dice.choice([0, 2_000, 20_000, 1 << 40])
        life[0] = replace(life[0], after_ms=dice.uniform(0, duration_ms), past_ms=past_ms)
    if "ttl" in query and dice.random() < 0.7:
        return life
    if kinds.removes:
        life[0] = replace(life[0], after_ms=dice.uniform(0, duration_ms * 0.7))
        return [
            *life,
            Act("unregister", None, "", dice.choice([0.0, 100.0, dice.uniform(0, 5_000)])),
        ]
    lives_on = True
    # Some queries move often, most stay as they are.
    steps = dice.choice([0, 0, 0, 1, 2, 3, 6]) if churn == 1 else dice.randint(0, 4 * churn)
    if churn > 1:
        mean_ms = 3 * duration_ms / max(1, steps)
    for _ in range(steps):
        pause_ms = dice.expovariate(1) * mean_ms / 3 if dice.random() < 0.6 else 0.0
        if lives_on and dice.random() < 0.25:
            lives_on = False
            life.append(Act("unregister", None, "", pause_ms))
            continue
        if dice.random() < 0.2:
            subscriber = f"s-{dice.randrange(4)}"
        action = "update" if lives_on else "register"
        lives_on = True
        if dice.random() < 0.2:
            kind = kinds.next(dice)
        # One query in six returns to a former version.
        former = [act.members for act in life if act.members is not None]
        members = (
            dice.choice(former)
            if dice.random() < 0.15
            else random_query(dice, query_id, kind, kinds=kinds)
        )
        if kinds.rewords < 1 and dice.random() >= kinds.rewords:
            kept = ("text", "region")
            members = {**members, **{name: query[name] for name in kept if name in query}}
        life.append(Act(action, members, subscriber, pause_ms))
    return life


def _begun(life: list[Act], dice: Random, share: float) -> list[Act]:
    """Gives some versions of a life a begin, mostly in the future."""
    begun: list[Any] = []
    for act in life:
        if "ttl" in (act.members or {}):
            # With a begin in the future routers see the registered version as ended.
            return begun + life[len(begun) :]
        is_published = act.members is not None and dice.random() < share
        begun.append(
            replace(act, starts_in_ms=dice.randint(-2_000, 8_000)) if is_published else act
        )
    return begun


def _object(dice: Random, number: int, words: list[str] = WORDS) -> Members:
    # Publications of one object are several objects.
    known = number if dice.random() < 0.9 else dice.randrange(5)
    one: Members = {"id": known, "lon": dice.uniform(-10, 10), "lat": dice.uniform(-10, 10)}
    if dice.random() < 0.95:
        one["text"] = " ".join(dice.choices(words, k=dice.randint(1, 5)))
    if dice.random() < 0.5:
        one["size"] = dice.randrange(10)
    if dice.random() < 0.3:
        one["vehicle"] = dice.choice(["bus", "van", 7, 7.0, True])
    return one


def random_query(
    dice: Random,
    query_id: str,
    kind: str,
    *,
    has_ttl: bool = False,
    mode: str = "continuous",
    kinds: Kinds = ANY_KINDS,
) -> Members:
    """Draws a query; `kind` may also be "tracked"."""
    query: Members = {"id": query_id, "kind": kind, "mode": mode}
    if kind == "tracked":
        query |= {"kind": "range", "track": dice.choice(["vehicle", "vehicle", "size"])}
        if dice.random() < 0.7:
            query["events"] = dice.sample(["enter", "inside", "exit"], dice.randint(1, 3))
    if dice.random() < 0.15:
        query["where"] = {"size": dice.choice([3, {"gte": 4}, {"lt": 5}])}
    if has_ttl:
        query["ttl"] = f"{dice.randint(500, 20_000)}ms"
    if kind in ("range", "tracked", "terms") and dice.random() < 0.9:
        query["region"] = _region(dice)
    if kind != "ranked" and (
        dice.random() < 1 - kinds.textless or (kind == "range" and "region" not in query)
    ):
        a, b, c = dice.sample(kinds.words, 3)
        single = [a, a, f"{a} {b}", f"{a} OR {b}", f"{a} AND NOT {c}", f"({a} OR {b}) AND NOT {c}"]
        query["text"] = dice.choice([f"{a} {b}", f"({a} {b}) OR {c}"] if kinds.joint else single)
        if kinds.patterned and dice.random() < kinds.patterned:
            query["text"] = dice.choice(
                [
                    f'"{a} {b}"',
                    f'{a} NOT "{a} {b}"',
                    f"{a[:2]}* NOT {c}",
                    f'ANY("{a} {b}" {c[:3]}*)',
                ]
            )
        if kinds.folded and dice.random() < kinds.folded:
            query["fold"] = True
    if kind in ("knn", "ranked"):
        query["point"] = {"lon": dice.uniform(-9, 9), "lat": dice.uniform(-9, 9)}
    if kind not in ("range", "tracked"):
        query["k"] = dice.randint(1, 5)
    if kind in ("terms", "ranked"):
        step_ms = dice.choice([500, 1_000, 1_300, 3_000])
        query["step"] = f"{step_ms}ms"
        if dice.random() < 0.7:
            query["window"] = f"{dice.randint(step_ms, 15_000)}ms"
    if kind == "ranked":
        query |= _ranking(dice)
    # With dice of its own, so that the rest of a seed is unchanged.
    if kind == "tracked":
        query |= _waits(Random(f"waits {query!r}"), kinds.waiting)
    if mode == "continuous" and Random(repr(query)).random() < 0.4:
        followed = query.get("events", ["enter", "exit"]) if "track" in query else []
        query["events"] = [*followed, "ended"]
    return query


def _waits(dice: Random, share: float) -> Members:
    """Draws how long values must be inside and outside; a share of queries has each of the two."""
    return {
        name: f"{dice.choice([1, 300, 1_000, 3_000])}ms"
        for name in ("dwell", "leave_after")
        if dice.random() < share
    }


def _ranking(dice: Random) -> Members:
    text = dice.choice([0.0, 0.2, 0.4, 1.0])
    space = dice.choice([0.0, 0.5, 1.0]) * (1 - text)
    return {
        "radius_m": 1e5 * dice.randint(3, 20),
        "keywords": dice.sample(WORDS, dice.randint(1, 3)),
        "weights": {"text": text, "space": space, "time": 1 - text - space},
        "half_life": f"{dice.randint(1, 60)}s",
    }


def _region(dice: Random) -> Members:
    lon, lat = dice.uniform(-8, 8), dice.uniform(-8, 8)
    reach = dice.choice([2.0, 5.0, 10.0])
    kind = dice.randrange(4)
    if kind == 0:
        return {"circle": {"lon": lon, "lat": lat, "radius_m": 111_000 * reach}}
    if kind == 1:
        ring = [[lon - reach, lat - reach], [lon + reach, lat - reach / 2], [lon, lat + reach]]
        return {"polygon": [ring]}
    west, east = lon - reach * dice.random(), lon + reach * dice.random()
    south, north = lat - reach * dice.random(), lat + reach * dice.random()
    return {"rect": {"west": west, "south": south, "east": east, "north": north}}


def _json(one: Members) -> bytes:
    return orjson.dumps(one)
