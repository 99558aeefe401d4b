"""The merger (rule R5): windows in transactions, one at a time; a match counts once."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest

from sirocco.codec.hops import encode
from sirocco.protocol.contract.columns import EventColumns, MatchColumns
from sirocco.protocol.contract.control_records import (
    CheckpointTaken,
    Declaration,
    Granted,
    LeaderElected,
)
from sirocco.protocol.contract.effects import (
    Committed,
    ControlRead,
    Draining,
    Effect,
    Entry,
    Fence,
    Fenced,
    Follow,
    Load,
    Loaded,
    Polled,
    State,
    Tick,
    Transact,
    Truncate,
    Unfollow,
)
from sirocco.protocol.contract.messages import DELIVERIES, PARTIALS, Delivered, Found, Progress
from sirocco.protocol.contract.positions import Intervals
from sirocco.protocol.contract.record_sizes import RecordLimits
from sirocco.protocol.merger.delivery_records import compacted, deliveries, of_subscriber
from sirocco.protocol.merger.limits import LIMITS, MergerLimits
from sirocco.protocol.merger.machine import (
    MergerMachine,
    MergerSettings,
)
from sirocco.runtime.loop.progress import progress_state
from sirocco.transport.log import RECORD_BYTES_MAX
from tests.support.random_messages import random_names, random_objects
from tests.support.values import columns_of, map_activated

CONTROL: list[Declaration] = [LeaderElected("c"), map_activated(0)]


def found_of(
    slot: int,
    begin: int,
    end: int,
    matches: list[tuple[int, str, str]],
    time_ms: int = 0,
) -> Found:
    """Returns findings in an interval: (position, query, subscriber), positions are object ids."""
    places = sorted({position for position, _, _ in matches})
    queries = sorted({(query, subscriber) for _, query, subscriber in matches})
    subscribers = sorted({subscriber for _, subscriber in queries})
    ids = [query.encode() for query, _ in queries]
    place_rows = {place: row for row, place in enumerate(places)}
    query_rows = {query: row for row, query in enumerate(queries)}
    rows = sorted((place_rows[p], query_rows[q, s]) for p, q, s in matches)
    names = random_names(np.random.default_rng(0), 0)
    objects = columns_of([{"id": p, "lon": 1, "lat": 1, "text": f"t{p}"} for p in places])
    return Found(
        intervals=Intervals.of([(slot, begin, end, time_ms)]),
        objects=objects,
        events=EventColumns(
            np.full(len(places), slot, np.uint64),
            np.array(places, np.uint64),
            np.zeros(len(places), np.int64),
        ),
        positions=np.array(places, np.int64),
        interval_rows=np.zeros(len(places), np.uint32),
        queries=type(names)(
            np.arange(len(queries), dtype=np.uint64),
            np.frombuffer(b"".join(ids), np.uint8),
            np.cumsum([0, *map(len, ids)]).astype(np.int64),
            np.array([subscribers.index(s) for _, s in queries], np.uint32),
            tuple(subscribers),
        ),
        matches=MatchColumns(
            np.array([row for row, _ in rows], np.uint32),
            np.array([query for _, query in rows], np.uint32),
        ),
    )


def triples(delivered: Delivered) -> list[tuple[str, str, int]]:
    """Returns (subscriber, query, object) in order."""
    names = delivered.queries
    ids, bounds = names.ids.tobytes(), names.id_offsets.tolist()
    rows = []
    for place, subscriber in enumerate(names.subscribers):
        begin, end = delivered.match_offsets[place : place + 2].tolist()
        for at in range(begin, end):
            query = int(delivered.matches.queries[at])
            assert names.subscribers[int(names.subscriber_rows[query])] == subscriber
            number = int(delivered.objects.ids[int(delivered.matches.objects[at])])
            rows.append((subscriber, ids[bounds[query] : bounds[query + 1]].decode(), number))
    return rows


class Shell:
    """Carries out a merger's effects on a list; commits on request."""

    def __init__(
        self,
        retained_bytes_max: int = 1 << 30,
        partition: int = 0,
        limits: MergerLimits = LIMITS,
    ) -> None:
        settings = MergerSettings(4, retained_bytes_max, limits=limits)
        self.machine = MergerMachine("m", settings)
        self.partition = partition
        self.open: list[Transact] = []
        self.written: list[Delivered | Progress] = []
        self.effects: list[Effect] = []
        self.offset = 0
        self.end_offset = 0

    def step(self, event: Any, now_ms: int = 0) -> list[Effect]:
        effects = self.machine.step(event, now_ms)
        self.effects += effects
        self.open += [effect for effect in effects if isinstance(effect, Transact)]
        assert len(self.open) <= 1
        return effects

    def own(self, offset: int = 0, progress: Progress | None = None) -> None:
        for at, declaration in enumerate([*CONTROL, Granted(0, PARTIALS, self.partition, "m")]):
            self.step(ControlRead(at, declaration))
        state = None if progress is None else progress_state(progress, self.end_offset)
        self.offset = offset
        self.step(
            Loaded(topic=PARTIALS, partition=self.partition, epoch=2, offset=offset, state=state)
        )

    def poll(self, *founds: Found, now_ms: int = 0) -> list[Effect]:
        entries = tuple(
            Entry(PARTIALS, self.partition, self.offset + i, found)
            for i, found in enumerate(founds)
        )
        self.offset += len(founds)
        return self.step(Polled(entries), now_ms)

    def commit(self, now_ms: int = 0, bytes_total: int = 100) -> list[Effect]:
        (transact,) = self.open
        self.open.clear()
        self.written += transact.messages  # type: ignore[arg-type]
        self.end_offset += len(transact.messages) + 1
        committed = Committed(self.partition, transact.number, bytes_total, self.end_offset)
        return self.step(committed, now_ms)

    def delivered(self) -> list[tuple[str, str, int]]:
        return [t for each in self.written if isinstance(each, Delivered) for t in triples(each)]


def test_r5_take_over_fences_the_predecessor_before_its_progress_is_read() -> None:
    shell = Shell(partition=3)
    shell.own()
    kinds = [type(effect) for effect in shell.effects]
    assert kinds == [Fence, Load, Follow]
    assert shell.effects[0] == Fence(3)


def test_r5_a_window_is_one_transaction_that_ends_with_its_progress() -> None:
    shell = Shell()
    shell.own()
    assert shell.poll(found_of(0, 0, 5, [(1, "q", "s")], time_ms=70), now_ms=10) == []
    assert shell.machine.deadline_ms() == LIMITS.window_ms
    assert shell.poll(found_of(1, 0, 5, [(2, "q", "s")]), now_ms=LIMITS.window_ms - 10) == []
    (effect,) = shell.step(Tick(), LIMITS.window_ms)
    assert isinstance(effect, Transact)
    delivered, progress = effect.messages
    assert isinstance(delivered, Delivered)
    assert triples(delivered) == [("s", "q", 1), ("s", "q", 2)]
    assert isinstance(progress, Progress)
    assert (progress.input_offset, progress.slots.tolist()) == (2, [0, 1])
    assert (progress.positions.tolist(), progress.times_ms.tolist()) == ([5, 5], [70, 0])
    assert shell.machine.deadline_ms() is None


def test_after_a_pause_the_first_matches_go_at_once() -> None:
    shell = Shell()
    shell.own()
    (effect,) = shell.poll(found_of(0, 0, 5, [(1, "q", "s")]), now_ms=LIMITS.window_ms)
    assert isinstance(effect, Transact)


def test_r5_the_next_window_waits_for_the_commit_and_then_goes_at_once() -> None:
    shell = Shell()
    shell.own()
    shell.poll(found_of(0, 0, 5, [(1, "q", "s")]))
    shell.step(Tick(), LIMITS.window_ms)
    shell.poll(found_of(0, 5, 9, [(6, "q", "s")]), now_ms=LIMITS.window_ms)
    assert shell.step(Tick(), 10 * LIMITS.window_ms) == []
    effects = shell.commit(now_ms=10 * LIMITS.window_ms)
    assert [type(effect) for effect in effects] == [Truncate, Transact]
    # Records after the first window's progress are still needed.
    assert effects[0] == Truncate(PARTIALS, 0, 1)


def test_nothing_more_is_read_while_too_much_waits_for_a_transaction() -> None:
    shell = Shell(limits=MergerLimits(waiting_bytes_max=300))
    shell.own()
    (transact,) = shell.poll(found_of(0, 0, 5, [(1, "q", "s")]), now_ms=LIMITS.window_ms)
    assert isinstance(transact, Transact)
    # `deliveries` is away: the transaction is retried repeatedly, and more records arrive.
    effects = [
        effect
        for at in range(5, 10)
        for effect in shell.poll(found_of(0, at, at + 1, [(at, "q", "s")]), now_ms=LIMITS.window_ms)
    ]
    assert effects == [Unfollow(PARTIALS, 0)]
    assert shell.step(Tick(), 9 * LIMITS.window_ms) == []
    # Then the waiting rest is written at once, and reading continues after that.
    kinds = [each for each in shell.commit(LIMITS.window_ms) if not isinstance(each, Truncate)]
    assert [type(each) for each in kinds] == [Transact, Follow]
    assert kinds[1] == Follow(PARTIALS, 0, 6)
    shell.commit(LIMITS.window_ms)
    assert [number for _, _, number in shell.delivered()] == [1, *range(5, 10)]


def test_a_full_window_does_not_wait() -> None:
    shell = Shell(limits=MergerLimits(window_matches_max=2))
    shell.own()
    assert shell.poll(found_of(0, 0, 5, [(1, "q", "s")])) == []
    (effect,) = shell.poll(found_of(0, 5, 9, [(6, "q", "s")]))
    assert isinstance(effect, Transact)


def test_silence_writes_progress_now_and_then() -> None:
    shell = Shell()
    shell.own()
    shell.poll(found_of(0, 0, 5, [], time_ms=7))
    assert shell.step(Tick(), LIMITS.progress_interval_ms - 1) == []
    (effect,) = shell.step(Tick(), LIMITS.progress_interval_ms)
    assert isinstance(effect, Transact)
    assert [type(message) for message in effect.messages] == [Progress]
    shell.commit()
    assert shell.step(Tick(), 5 * LIMITS.progress_interval_ms) == []


def test_draining_writes_what_waits() -> None:
    shell = Shell()
    shell.own()
    shell.poll(found_of(0, 0, 5, [(1, "q", "s")]))
    (effect,) = shell.step(Draining())
    assert isinstance(effect, Transact)


def test_r2_repeats_are_trimmed_and_gaps_refused() -> None:
    shell = Shell()
    shell.own()
    shell.poll(found_of(0, 0, 5, [(1, "q", "s"), (4, "q", "s")]))
    shell.poll(found_of(0, 2, 9, [(4, "q", "s"), (4, "r", "t"), (7, "q", "s")]))
    shell.poll(found_of(0, 3, 8, [(4, "q", "s"), (7, "q", "s")]))
    shell.poll(found_of(0, 10, 12, [(11, "q", "s")]))
    shell.step(Tick(), LIMITS.window_ms)
    shell.commit()
    assert sorted(shell.delivered()) == [("s", "q", 1), ("s", "q", 4), ("s", "q", 7)]
    assert shell.machine.repeats_total == 5
    assert shell.machine.windows[0].reached.gaps == 1


def test_r5_lost_partitions_are_let_go_and_late_commits_ignored() -> None:
    shell = Shell()
    shell.own()
    shell.poll(found_of(0, 0, 5, [(1, "q", "s")]))
    shell.step(Tick(), LIMITS.window_ms)
    effects = shell.step(ControlRead(3, Granted(0, PARTIALS, 0, "other")))
    assert effects == [Unfollow(PARTIALS, 0)]
    assert shell.commit() == []
    assert shell.poll(found_of(0, 5, 6, [(5, "q", "s")])) == []


@pytest.mark.parametrize("seed", range(20))
def test_r5_successors_deliver_each_match_once_whatever_was_committed(seed: int) -> None:
    # init: a log of partials: three slots, repeats, overlaps; then mergers that die somewhere.
    rng = np.random.default_rng(seed)
    log: list[Found] = []
    wanted: Counter[tuple[str, str, int]] = Counter()
    sent: dict[int, int] = defaultdict(int)
    truth: dict[int, list[tuple[int, str, str]]] = {}
    for slot in range(3):
        truth[slot] = [
            (1_000 * slot + p, str(rng.choice(["q", "r"])), str(rng.choice(["s", "t", "u"])))
            for p in range(200)
            if rng.random() < 0.5
        ]
        wanted.update((s, q, p) for p, q, s in truth[slot])
    while any(sent[slot] < 200 for slot in range(3)):
        slot = int(rng.integers(3))
        begin = sent[slot] if rng.random() < 0.7 else int(rng.integers(0, sent[slot] + 1))
        end = min(200, begin + int(rng.integers(0, 30)))
        sent[slot] = max(sent[slot], end)
        base = 1_000 * slot
        inside = [m for m in truth[slot] if base + begin <= m[0] < base + end]
        # Positions of a slot begin at its base here; the first interval covers all before.
        log.append(found_of(slot, base + begin if begin else 0, base + end, inside))

    # test: each merger continues from the last committed progress.
    written: list[Delivered | Progress] = []
    while True:
        last = next((each for each in reversed(written) if isinstance(each, Progress)), None)
        shell = Shell()
        shell.own(0 if last is None else last.input_offset, last)
        now_ms, steps = 0, int(rng.integers(1, 30))
        while steps > 0 and (shell.offset < len(log) or shell.open):
            steps -= 1
            now_ms += int(rng.integers(0, LIMITS.window_ms))
            upto = min(len(log), shell.offset + int(rng.integers(0, 6)))
            shell.poll(*log[shell.offset : upto], now_ms=now_ms)
            if shell.open and rng.random() < 0.6:
                shell.commit(now_ms)
        if shell.offset == len(log) and not shell.open:
            shell.step(Draining(), now_ms)
            if shell.open:
                shell.commit(now_ms)
            written += shell.written
            break
        written += shell.written

    # check
    found = Counter(t for each in written if isinstance(each, Delivered) for t in triples(each))
    assert found == wanted, f"seed={seed}"


def test_what_subscribers_did_not_fetch_is_dropped_beyond_the_retention() -> None:
    shell = Shell(retained_bytes_max=100)
    shell.own()
    truncated = []
    for i in range(5):
        shell.poll(found_of(0, i, i + 1, [(i, "q", "s")]), now_ms=i * 1_000)
        shell.step(Tick(), i * 1_000 + LIMITS.window_ms)
        effects = shell.commit(now_ms=i * 1_000 + LIMITS.window_ms)
        truncated += [e for e in effects if isinstance(e, Truncate) and e.topic == DELIVERIES]
    # Each window has 100 bytes and three offsets; two of them are kept.
    assert [effect.before_offset for effect in truncated] == [3, 6, 9]


def test_r5_the_newest_progress_is_kept_however_small_the_retention() -> None:
    shell = Shell(retained_bytes_max=10)
    shell.own()
    for i in range(3):
        shell.poll(found_of(0, i, i + 1, [(i, "q", "s")]), now_ms=i * 1_000)
        shell.step(Tick(), i * 1_000 + LIMITS.window_ms)
        for effect in shell.commit(now_ms=i * 1_000 + LIMITS.window_ms):
            if isinstance(effect, Truncate) and effect.topic == DELIVERIES:
                assert effect.before_offset <= shell.end_offset - 3


def test_records_of_a_predecessor_are_truncated_when_as_much_again_was_written() -> None:
    # init: a successor finds 40 offsets.
    shell = Shell(retained_bytes_max=300)
    shell.end_offset = 40
    nothing = np.empty(0, np.int64)
    shell.own(7, Progress(7, nothing.astype(np.uint32), nothing, nothing))

    # test: 100 bytes a window.
    truncated = []
    for i in range(5):
        shell.poll(found_of(0, i, i + 1, [(i, "q", "s")]), now_ms=i * 1_000)
        shell.step(Tick(), i * 1_000 + LIMITS.window_ms)
        effects = shell.commit(now_ms=i * 1_000 + LIMITS.window_ms)
        truncated += [e for e in effects if isinstance(e, Truncate) and e.topic == DELIVERIES]

    # check
    assert [effect.before_offset for effect in truncated] == [40]


def test_r5_a_fenced_merger_restarts_from_committed_state() -> None:
    shell = Shell()
    shell.own()
    shell.poll(found_of(0, 0, 5, [(1, "q", "s")]), now_ms=LIMITS.window_ms)
    (transact,) = shell.open
    shell.open.clear()
    effects = shell.step(Fenced(0, transact.number))
    assert [type(effect) for effect in effects] == [Unfollow, Fence, Load]
    # Nothing of the former window is kept, and a late answer to it has no effect.
    assert shell.step(Committed(0, transact.number, 10, 4)) == []
    assert shell.machine.windows == {}
    (load,) = (effect for effect in effects if isinstance(effect, Load))
    shell.step(Loaded(topic=PARTIALS, partition=0, epoch=load.epoch, offset=0, state=None))
    assert shell.machine.holdings.owns(PARTIALS, 0)


def with_lists(input_offset: int) -> State:
    nothing = np.empty(0, np.int64)
    progress = Progress(input_offset, nothing.astype(np.uint32), nothing, nothing, has_lists=True)
    return progress_state(progress, 40)


def granted() -> Shell:
    """Returns a merger that waits for its load."""
    shell = Shell()
    for at, declaration in enumerate([*CONTROL, Granted(0, PARTIALS, 0, "m")]):
        shell.step(ControlRead(at, declaration))
    return shell


def test_r5_a_merger_without_a_checkpoint_of_its_lists_waits_for_one() -> None:
    # init: others have sent lists while it was paused.
    shell = granted()
    assert (
        shell.step(Loaded(topic=PARTIALS, partition=0, epoch=2, offset=7, state=with_lists(7)))
        == []
    )
    assert not shell.machine.holdings.owns(PARTIALS, 0)
    assert shell.step(Tick(), 60_000) == []

    # test: it reads on.
    effects = shell.step(ControlRead(3, CheckpointTaken(PARTIALS, 0, 2, 5, "n")))
    assert effects == [Unfollow(PARTIALS, 0), Fence(0), Load(PARTIALS, 0, 2, "n", 5)]

    # check: with a useless checkpoint it behaves as without one.
    assert (
        shell.step(Loaded(topic=PARTIALS, partition=0, epoch=2, offset=9, state=with_lists(9)))
        == []
    )
    effects = shell.step(ControlRead(4, CheckpointTaken(PARTIALS, 0, 2, 4, "less")))
    assert not any(isinstance(effect, Load) for effect in effects)
    shell.step(ControlRead(5, Granted(0, PARTIALS, 0, "other")))
    assert shell.step(ControlRead(6, CheckpointTaken(PARTIALS, 0, 2, 8, "more"))) == []
    assert shell.machine.windows == {}


def test_r5_a_checkpoint_declared_during_a_load_is_loaded_as_well() -> None:
    shell = granted()
    shell.step(ControlRead(3, CheckpointTaken(PARTIALS, 0, 2, 5, "n")))
    effects = shell.step(
        Loaded(topic=PARTIALS, partition=0, epoch=2, offset=7, state=with_lists(7))
    )
    assert effects == [Unfollow(PARTIALS, 0), Fence(0), Load(PARTIALS, 0, 2, "n", 5)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("bytes_max", [1 << 20, 300])
def test_deliveries_hold_each_match_with_its_subscriber(seed: int, bytes_max: int) -> None:
    rng = np.random.default_rng(seed)
    parts, wanted = [], []
    for i in range(int(rng.integers(1, 6))):
        matches = sorted(
            {
                (10 * i + int(rng.integers(10)), str(rng.choice(["q", "rr", "é"])), "s")
                for _ in range(int(rng.integers(1, 9)))
            }
        )
        # A query has one subscriber.
        named = [(p, q, {"q": "ann", "rr": "bob", "é": "ann"}[q]) for p, q, _ in matches]
        parts.append(found_of(i, 0, 100, named))
        wanted += [(s, q, p) for p, q, s in named]
    records = list(deliveries(parts, RecordLimits(bytes_max=bytes_max)))
    found = [t for record in records for t in triples(record)]
    assert sorted(found) == sorted(wanted), f"seed={seed}"
    # Those of one subscriber are in the order in which they were found.
    for subscriber in ("ann", "bob"):
        mine = [number // 10 for s, _, number in found if s == subscriber]
        assert mine == sorted(mine), f"seed={seed}"


def random_delivered(rng: np.random.Generator) -> Delivered:
    """Returns matches of several subscribers, with unreferenced objects and names."""
    objects, names = random_objects(rng, 12), random_names(rng, 9)
    rows = rng.integers(0, 9, int(rng.integers(0, 15)))
    rows = rows[np.argsort(names.subscriber_rows[rows], kind="stable")]
    counts = np.bincount(names.subscriber_rows[rows], minlength=len(names.subscribers))
    events = EventColumns(
        np.arange(12, dtype=np.uint64), np.arange(12, dtype=np.uint64), np.zeros(12, np.int64)
    )
    matches = MatchColumns(rng.integers(0, 12, len(rows)).astype(np.uint32), rows.astype(np.uint32))
    bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Delivered(
        objects=objects, events=events, queries=names, matches=matches, match_offsets=bounds
    )


@pytest.mark.parametrize("seed", range(40))
def test_the_part_of_a_subscriber_is_its_matches_and_nothing_else(seed: int) -> None:
    delivered = random_delivered(np.random.default_rng(seed))
    whole = triples(delivered)
    assert triples(compacted(delivered)) == whole
    for subscriber in (*delivered.queries.subscribers, "nobody"):
        wanted = [each for each in whole if each[0] == subscriber]
        part = of_subscriber(delivered, subscriber)
        assert (part is None) == (not wanted), f"seed={seed}"
        if part is None:
            continue
        assert triples(part) == wanted, f"seed={seed}"
        if len(delivered.queries.subscribers) > 1:
            assert part.queries.subscribers == (subscriber,)
            assert len(part.objects) == len(part.events) == len({n for *_, n in wanted})
            assert len(part.queries) == len({q for _, q, _ in wanted})


def test_dense_matches_fit_the_records_of_the_log() -> None:
    # Matches dominate here, not texts: 60 parts of 20,000 matches each, about 14 MB.
    dense = [(p, f"q{q}", "ann") for p in range(10) for q in range(2_000)]
    parts = [found_of(0, 0, 100, dense)] * 60

    records = list(deliveries(parts))

    sizes = [len(encode(record)[1].SerializeToString()) for record in records]
    assert max(sizes) <= RECORD_BYTES_MAX // 2 + (1 << 20)
    assert sum(len(record.matches) for record in records) == 60 * len(dense)
