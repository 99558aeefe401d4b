"""Lists, sets, slices and texts against plain Python, under keys chosen for their hashes.

As in `tests.fuzz.tables`, a run is a seed. Values are drawn at borders: places at poles and on the
antimeridian, words with a common beginning or of critical lengths, numbers of all bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
from numpy.typing import NDArray

from sirocco.codec.checkpoint import read_state, write_state
from sirocco.index.base.query_rows import QueryRows
from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.standing.knn_index import KnnIndex
from sirocco.index.standing.track.track_index import ENTERS, EXITS, INSIDE, TrackIndex
from sirocco.index.store.store import SlotStore, StoreLimits
from sirocco.index.store.store_condition import compile_condition
from sirocco.index.store.store_search import scan_range, search_knn
from sirocco.index.store.terms_search import count_terms
from sirocco.model.geometry import distance_m
from sirocco.model.objects import MISSING_TS, ObjectColumnsBuilder, ObjectRow
from sirocco.model.term_hashing import SECRET_BYTES, WIRE_TERMS, TermHashing
from sirocco.model.text import tokens_of
from tests.fuzz.chosen_keys import FAMILIES, Keys, drawn
from tests.support.range_oracle import Columns

NONE = np.empty(0, np.uint64)
EXTREMES = (0, 1, 2, 1 << 31, 1 << 32, 1 << 63, (1 << 64) - 2, (1 << 64) - 1)
LONGITUDES = (-180.0, 180.0, 179.9999999, -90.0, 0.0, 1e-9, 90.0)
LATITUDES = (-90.0, 90.0, -1e-9, 0.0, 45.0, 89.9999999)

EVENTS = (ENTERS, INSIDE, EXITS)
NEVER_DEAD = 1 << 62


@dataclass(kw_only=True)
class Thing:
    """An object: its place, terms and keys."""

    lon: float
    lat: float
    terms: tuple[int, ...]
    position: int
    id: int
    session: int
    number: int
    key: int = 0
    value: int = 0


@dataclass(kw_only=True)
class DrawnQuery:
    """A query: a disjunction of (required terms, excluded terms)."""

    text: list[tuple[tuple[int, ...], tuple[int, ...]]]
    lon: float = 0.0
    lat: float = 0.0
    k: int = 1
    key: int = 0
    events: int = 0
    born: int = 0
    dead: int = NEVER_DEAD
    entries: list[tuple[int, int, int, int]] = field(default_factory=list)

    def holds(self, terms: Sequence[int]) -> bool:
        """Returns whether a set of terms satisfies the text."""
        own = set(terms)
        return any(
            own.issuperset(asked) and own.isdisjoint(refused) for asked, refused in self.text
        )

    def meets(self, thing: Thing) -> bool:
        """Returns whether it is alive for an object that satisfies it."""
        return self.born <= thing.position < self.dead and self.holds(thing.terms)


def queries_of(drawn_queries: Sequence[DrawnQuery]) -> QueryRows:
    """Returns the texts of queries of the whole world, as columns."""
    n = len(drawn_queries)
    world = np.tile([-180.0, -90.0, 180.0, 90.0], (n, 1))
    rows = QueryRows.of_boxes(world, np.zeros(n + 1, np.int64), NONE)
    texts = [part for one_query in drawn_queries for part in one_query.text]
    asked, refused = ([part[i] for part in texts] for i in (0, 1))
    return replace(
        rows,
        conj_offsets=_offsets([one_query.text for one_query in drawn_queries]),
        pos_offsets=_offsets(asked),
        pos_terms=_column(asked),
        neg_offsets=_offsets(refused),
        neg_terms=_column(refused),
    )


def _offsets(rows: Sequence[Sequence[object]]) -> NDArray[np.int64]:
    return np.cumsum([0, *map(len, rows)]).astype(np.int64)


def _column(rows: Sequence[Sequence[int]]) -> Keys:
    return np.array([each for row in rows for each in row], np.uint64)


class Drawing:
    """The values of one run: a few chosen terms, ids and sessions, and places."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        count = dice.choice([3, 12, 60, 200])
        family = dice.choice(FAMILIES)(count)
        terms = np.concatenate([family, drawn(5, dice.getrandbits(32))])
        # Ids below 2 mean no term in some tables; as numbers of terms they are ordinary.
        self.terms = np.unique(np.concatenate([terms, np.array(EXTREMES, np.uint64)])).tolist()
        self.ids = [*dice.choice(FAMILIES)(20).tolist(), *EXTREMES]
        self.places = [self._place() for _ in range(dice.choice([1, 4, 30]))]
        self.number = 0

    def _place(self) -> tuple[float, float]:
        lon, lat = self.dice.uniform(-180, 180), self.dice.uniform(-90, 90)
        if self.dice.random() < 0.4:
            lon = self.dice.choice(LONGITUDES)
        if self.dice.random() < 0.4:
            lat = self.dice.choice(LATITUDES)
        return lon, lat

    def some_terms(self, most: int) -> tuple[int, ...]:
        """Returns different terms, ascending."""
        count = min(self.dice.choice([0, 1, 1, 2, 3, most]), len(self.terms))
        return tuple(sorted(self.dice.sample(self.terms, count)))

    def text(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Returns alternatives, each with a required term; or no text at all."""
        if self.dice.random() < 0.3:
            return [((), ())]
        parts = []
        for _ in range(self.dice.choice([1, 1, 2, 5, 40])):
            asked = self.some_terms(9) or (self.dice.choice(self.terms),)
            refused = self.some_terms(9) if self.dice.random() < 0.4 else ()
            parts.append((asked, tuple(term for term in refused if term not in asked)))
        return parts

    def thing(self, position: int, most: int = 40) -> Thing:
        """Returns an object; numbers never repeat."""
        dice = self.dice
        self.number += 1
        lon, lat = dice.choice(self.places) if dice.random() < 0.7 else self._place()
        own, session = dice.choice(self.ids), dice.choice(self.ids)
        number = self.number | dice.choice([0, 1 << 32, 1 << 63])
        return Thing(
            lon=lon,
            lat=lat,
            terms=self.some_terms(most),
            position=position,
            id=own,
            session=session,
            number=number,
        )


def columns_of(things: Sequence[Thing]) -> Columns:
    """Returns longitudes, latitudes, terms by offsets, arrivals, positions, as `match` needs."""
    terms = [thing.terms for thing in things]
    positions = np.array([thing.position for thing in things], np.int64)
    return (
        np.array([thing.lon for thing in things], np.float64),
        np.array([thing.lat for thing in things], np.float64),
        _offsets(terms),
        _column(terms),
        positions * 100,
        positions,
    )


def _numbers(things: Sequence[Thing], *names: str) -> list[Keys]:
    return [np.array([getattr(thing, name) for thing in things], np.uint64) for name in names]


def nearest(dice: Random) -> None:
    """Tests lists of the nearest, over registrations, removals and checkpoints."""
    drawing, index = Drawing(dice), KnnIndex()
    live: dict[int, DrawnQuery] = {}
    position = 0
    for _ in range(5):
        fresh = []
        for _ in range(dice.choice([0, 1, 8, 33])):
            lon, lat = dice.choice(drawing.places)
            fresh.append(
                DrawnQuery(
                    text=drawing.text(),
                    lon=lon,
                    lat=lat,
                    k=dice.choice([1, 2, 7, 100]),
                    born=position,
                )
            )
        if fresh:
            points = np.array([[one_query.lon, one_query.lat] for one_query in fresh])
            k = np.array([one_query.k for one_query in fresh], np.int32)
            rows = index.insert(queries_of(fresh), points, k, position).tolist()
            assert live.keys().isdisjoint(rows)
            live.update(zip(rows, fresh, strict=True))
        removed = [row for row in live if live[row].dead == NEVER_DEAD and dice.random() < 0.2]
        index.remove(np.array(removed, np.int32), position)
        for row in removed:
            live[row].dead = position
        things = [drawing.thing(position + n) for n in range(dice.choice([1, 31, 64, 120]))]
        position += len(things)
        ids, sessions, numbers = _numbers(things, "id", "session", "number")
        index.match(*columns_of(things), ids, sessions, numbers)
        _offer(things, live.values())
        for row, one_query in live.items():
            near = index.near(row)
            columns = np.rint(near.distances_m * 1000), near.ids, near.sessions, near.numbers
            found = list(zip(*(column.tolist() for column in columns), strict=True))
            assert found == one_query.entries, f"row {row}: {one_query}"
        while index.reclaim(position):
            pass
        live = {row: one_query for row, one_query in live.items() if one_query.dead > position}


def _offer(things: Sequence[Thing], drawn_queries: Iterable[DrawnQuery]) -> None:
    lon = np.array([thing.lon for thing in things])
    lat = np.array([thing.lat for thing in things])
    for one_query in drawn_queries:
        # Not the oracle's distances: where one is half a millimetre, both round as they happen to.
        mm = np.rint(distance_m(one_query.lon, one_query.lat, lon, lat) * 1000).tolist()
        one_query.entries += [
            (distance, thing.id, thing.session, thing.number)
            for distance, thing in zip(mm, things, strict=True)
            if one_query.meets(thing)
        ]
        one_query.entries = sorted(one_query.entries)[: one_query.k]


def values(dice: Random) -> None:
    """Tests values that enter, stay in and leave queries; chosen values may share a set."""
    drawing, index = Drawing(dice), TrackIndex()
    keys = dice.sample(EXTREMES, 3)
    chosen = [*dice.choice(FAMILIES)(dice.choice([1, 5, 40])).tolist(), *EXTREMES]
    # Values of two keys with one handle.
    handles = np.array(chosen[:3], np.uint64)
    own = np.full(len(handles), keys[0], np.uint64), np.full(len(handles), keys[1], np.uint64)
    held = index._values.sets.handles_of(own[0], handles)
    chosen += index._values.sets.handles_of(own[1], held).tolist()
    live: dict[int, DrawnQuery] = {}
    inside: dict[tuple[int, int], set[int]] = {}
    position = 0
    for _ in range(6):
        fresh = [
            DrawnQuery(
                text=drawing.text(), key=dice.choice(keys), events=dice.choice([14, 10, 4, 8, 0])
            )
            for _ in range(dice.choice([0, 1, 9, 40]))
        ]
        if fresh:
            for one_query in fresh:
                one_query.born = position
            events = np.array([one_query.events for one_query in fresh], np.uint8)
            (own_keys,) = _numbers(fresh, "key")  # type: ignore[arg-type]
            rows = index.insert(queries_of(fresh), own_keys, events, position).tolist()
            assert live.keys().isdisjoint(rows)
            live.update(zip(rows, fresh, strict=True))
        removed = [row for row in live if live[row].dead == NEVER_DEAD and dice.random() < 0.15]
        index.remove(np.array(removed, np.int32), position)
        for row in removed:
            live[row].dead = position
        things = [drawing.thing(position + n) for n in range(dice.choice([1, 31, 64, 150]))]
        position += len(things)
        for thing in things:
            thing.key, thing.value = dice.choice(keys), dice.choice(chosen)
        each = np.arange(len(things))
        of_keys, of_values = _numbers(things, "key", "value")
        found = index.match(*columns_of(things), each, of_keys, of_values)
        reported = zip(found.object_rows, found.events, found.query_rows, strict=True)
        wanted = _moves(things, live, inside)
        assert sorted((int(a), int(b), int(c)) for a, b, c in reported) == wanted
        while index.reclaim(position):
            pass
        dead = {row for row, one_query in live.items() if one_query.dead <= position}
        for row in dead:
            del live[row]
        for rows_inside in inside.values():
            rows_inside.difference_update(dead)
        if live and dice.random() < 0.5:
            _check_members(index, live, inside, dice)


def _moves(
    things: Sequence[Thing], live: dict[int, DrawnQuery], inside: dict[tuple[int, int], set[int]]
) -> list[tuple[int, int, int]]:
    reported = []
    for number, thing in enumerate(things):
        before = inside.setdefault((thing.key, thing.value), set())
        for row, one_query in live.items():
            if one_query.key != thing.key or not one_query.born <= thing.position < one_query.dead:
                continue
            was, now = row in before, one_query.holds(thing.terms)
            if was or now:
                event = EXITS if not now else INSIDE if was else ENTERS
                before.symmetric_difference_update({row} if was != now else ())
                if event == ENTERS and not one_query.events >> ENTERS & 1:
                    event = INSIDE
                if one_query.events >> event & 1:
                    reported.append((number, event, row))
    return sorted(reported)


def _check_members(
    index: TrackIndex,
    live: dict[int, DrawnQuery],
    inside: dict[tuple[int, int], set[int]],
    dice: Random,
) -> None:
    """Takes the values inside some queries out, checks them, and puts them back."""
    some = [row for row in live if dice.random() < 0.5]
    members = index.take_members(np.array(some, np.int32))
    pairs = set(zip(members.query_rows.tolist(), members.values.tolist(), strict=True))
    assert len(pairs) == len(members)
    held = {(row, value) for (_, value), rows in inside.items() for row in rows if row in some}
    assert pairs == held
    index.put_members(members)


def searches(dice: Random) -> None:
    """Tests slices of chosen terms: append, seal, merge, save, read; search and count."""
    drawing = Drawing(dice)
    rows = dice.choice([1, 16, 40, 200])
    limits = StoreLimits(active_rows=rows, slices=dice.choice([1, 2, 5]), slice_rows=4 * rows)
    store = SlotStore(limits)
    things: list[Thing] = []
    for _ in range(4):
        fresh = [
            drawing.thing(len(things) + n, dice.choice([6, 200]))
            for n in range(dice.choice([0, 1, 63, 130]))
        ]
        if fresh:
            store.append_rows(stored_of(fresh))
        things += fresh
        if dice.random() < 0.4:
            store.seal()
        while dice.random() < 0.8 and (job := store.next_job()) is not None:
            job.run()
            assert store.install(job)
        if dice.random() < 0.3:
            slices = store.slices
            store = SlotStore.restore(read_state(write_state(store.state())), limits)
            for each in slices:
                store.adopt(each)
        _check_searches(store, things, drawing)


def stored_of(things: Sequence[Thing]) -> StoredRows:
    """Returns objects without text, as a slot stores them."""
    builder = ObjectColumnsBuilder()
    for thing in things:
        builder.add(
            ObjectRow(
                id=thing.id,
                name="",
                lon=thing.lon,
                lat=thing.lat,
                ts=MISSING_TS,
                text="",
                attributes=b"",
            )
        )
    _, _, offsets, terms, arrivals, positions = columns_of(things)
    sessions, numbers = _numbers(things, "session", "number")
    return StoredRows(
        objects=builder.build(),
        sessions=sessions,
        numbers=numbers,
        arrivals_ms=arrivals,
        seqs=positions,
        lengths=np.diff(offsets).astype(np.int32),
        term_offsets=offsets,
        terms=terms,
        counts=np.ones(len(terms), np.uint16),
    )


def _check_searches(store: SlotStore, things: Sequence[Thing], drawing: Drawing) -> None:
    view, dice = store.view(), drawing.dice
    for _ in range(4):
        lon, lat = dice.choice(drawing.places)
        one_query = DrawnQuery(text=drawing.text(), lon=lon, lat=lat, k=dice.choice([1, 5, 50]))
        condition = compile_condition(queries_of([one_query]))
        met = [thing for thing in things if one_query.holds(thing.terms)]
        found = [seq for part in scan_range(view, condition) for seq in part.seqs().tolist()]
        assert sorted(found) == [thing.position for thing in met]
        near = search_knn(view, lon, lat, one_query.k, condition)
        _offer(met, [one_query])
        mm = np.rint(near.distances_m * 1000).tolist()
        keys = near.ids.tolist(), near.sessions.tolist(), near.numbers.tolist()
        assert sorted(zip(mm, *keys, strict=True)) == one_query.entries
        counted = count_terms(view, condition)
        wanted = Counter(term for thing in met for term in thing.terms)
        assert dict(zip(counted.hashes.tolist(), counted.counts.tolist(), strict=True)) == wanted


# Letters of one to four bytes, joining marks, letters that case folding extends, and separators.
_LETTERS = (
    "aZ09_é\u0301\u0308ßİſﬁ½²Å가각\u1100\u1161\u11a8नि\u093cไกำ日豈😀🏽\u200d\u00ad\U0001d400"
)
_OTHERS = " \0\t\n.,-'“\u00a0\u3000\uffff\U0010ffff"


def texts(dice: Random) -> None:
    """Compares the terms of a batch of texts with the plain analysis; on the wire and keyed."""
    batch = [_text(dice) for _ in range(dice.choice([1, 3, 40]))]
    encoded = [text.encode() for text in batch]
    data = np.frombuffer(b"".join(encoded), np.uint8)
    offsets = _offsets(encoded)
    for hashing in (WIRE_TERMS, TermHashing(dice.randbytes(SECRET_BYTES).hex())):
        found = hashing.tokens(data, offsets)
        assert len(found.offsets) == len(batch) + 1
        for row, text in enumerate(batch):
            words = tokens_of(text)
            begin, end = found.offsets[row : row + 2].tolist()
            counts = Counter(hashing.numbers(words).tolist())
            assert found.terms[begin:end].tolist() == sorted(counts), repr(text)
            assert found.lengths[row] == len(words), repr(text)
            given = dict(zip(found.terms[begin:end].tolist(), found.counts[begin:end], strict=True))
            assert given == counts, repr(text)


def _text(dice: Random) -> str:
    kind = dice.randrange(4)
    if kind == 0:
        # Words near the lengths at which the wire hash and the keyed hash change their method.
        lengths = [0, 1, 2, 3, 4, 7, 8, 9, 16, 17, 127, 128, 129, 136, 240, 241, 300]
        stem = dice.choice(["a", "é", "日"])
        words = [stem * dice.choice(lengths) + dice.choice(["", "b"]) for _ in range(9)]
        return " ".join(words)
    if kind == 1:
        return "".join(dice.choices(_LETTERS, k=dice.choice([1, 8, 200])))
    if kind == 2:
        return "".join(dice.choices(_LETTERS + _OTHERS, k=dice.choice([0, 1, 30, 400])))
    return " ".join(dice.choices([*"abcdefgh", "x" * 9], k=dice.choice([1, 300, 3_000])))


WORKS: tuple[Callable[[Random], None], ...] = (nearest, values, searches, texts)
