"""Lists of standing queries: complete, sent once, and the same after any takeover."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import orjson
import pytest

from sirocco.protocol.contract.columns import ENTERS, LEAVES
from sirocco.protocol.contract.control_records import Granted
from sirocco.protocol.contract.effects import ControlRead, Fence, Load, Unfollow
from sirocco.protocol.contract.messages import Found, Progress
from sirocco.protocol.contract.positions import position_of
from sirocco.protocol.merger.limits import MergerLimits
from sirocco.protocol.merger.machine import MergerMachine, MergerSettings
from tests.support.list_records import (
    End,
    Item,
    ListChange,
    ListVersion,
    Match,
    Ranked,
    Row,
    Seen,
    Terms,
    found_of,
    knn_spec,
    ranked_spec,
    spec_of,
    terms_spec,
    tracked_spec,
    version,
)
from tests.support.merger_cluster import MergerCluster, SentItems

SLOTS = 3
ROUNDS = 12
# A script lasts some windows: temporary state is forgotten within them.
LIMITS = MergerLimits(forget_interval_ms=1)


@dataclass(slots=True)
class Script:
    """The reports of one slot: items by position, and the positions at which its time changes."""

    slot: int
    items: list[tuple[int, Item]]
    times: list[tuple[int, int]]

    @property
    def end(self) -> int:
        return max(self.items[-1][0] if self.items else 0, self.times[-1][0]) + 1

    def time_ms(self, end: int) -> int:
        return max((time for position, time in self.times if position < end), default=0)


def plain(name: str) -> ListVersion:
    return ListVersion(name, "", f"s-{name}")


KNN = [ListVersion(f"knn{i}", knn_spec(f"knn{i}", k), f"s{i % 2}") for i, k in enumerate((1, 3, 5))]
SHORT = ListVersion("short", spec_of({**orjson.loads(knn_spec("short", 2)), "ttl": "200ms"}), "s0")
TERMS = [ListVersion(f"terms{i}", terms_spec(f"terms{i}", k), "s0") for i, k in enumerate((2, 50))]
RANKED = [
    ListVersion(f"ranked{i}", ranked_spec(f"ranked{i}", k), "s1") for i, k in enumerate((1, 3))
]
TRACKED = [ListVersion("tracked", tracked_spec("tracked"), "s1")]
PLAIN = [plain("p"), plain("q")]


def random_script(rng: np.random.Generator, slot: int, *, ends: bool) -> Script:
    """Returns a slot's life: matches, candidates, steps at every 100 ms, versions that end."""
    script = Script(slot, [], [(0, 0)])
    position = time_ms = 0
    # Queries end and are registered again unchanged, in all slots alike.
    life_starts = dict.fromkeys([*KNN, SHORT, *TERMS, *RANKED], 0)
    near = [*KNN, SHORT] if ends else KNN
    while time_ms < 1_000:
        position += 1
        kind = rng.random()
        if kind < 0.15:
            for at_ms in range(time_ms // 100 * 100, time_ms + 400, 100):
                if not time_ms <= at_ms < time_ms + 100:
                    continue
                for item in random_parts(rng, slot, position, at_ms, life_starts):
                    script.items.append((position, item))
                    position += int(rng.integers(0, 2))
            time_ms = time_ms // 100 * 100 + 100
            position += 1
            script.times.append((position, time_ms))
        elif kind < 0.5:
            asked = near[int(rng.integers(len(near)))]
            name = int(rng.integers(40)) if rng.random() < 0.7 else f"é{rng.integers(40)}"
            distance_m = float(rng.integers(80)) / 4
            script.items.append(
                (position, Match(version(asked, life_starts[asked]), name, distance_m))
            )
        elif kind < 0.8:
            asked = [*PLAIN, *TRACKED][int(rng.integers(3))]
            change = int(rng.integers(ENTERS, LEAVES + 1)) if asked in TRACKED else 0
            script.items.append((position, Match(asked, int(rng.integers(99)), 0.0, change)))
        elif ends and kind < 0.9:
            # Each version ends in all slots, though not at the same time.
            asked = [*life_starts][int(rng.integers(len(life_starts)))]
            if life_starts[asked] < 1:
                script.items.append(
                    (position, ended(asked, life_starts, life_starts[asked], time_ms))
                )
                life_starts[asked] += 1
    if ends:
        for asked, count in life_starts.items():
            for number in range(count, 2):
                position += 1
                script.items.append((position, ended(asked, life_starts, number, time_ms)))
    return script


def ended(
    asked: ListVersion, life_starts: dict[ListVersion, int], number: int, time_ms: int
) -> End:
    by = 0, 2 * list(life_starts).index(asked) + number
    return End(version(asked, number), time_ms, by)


def random_parts(
    rng: np.random.Generator,
    slot: int,
    position: int,
    at_ms: int,
    life_starts: dict[ListVersion, int],
) -> list[Item]:
    items: list[Item] = []
    for asked in TERMS:
        for _ in range(int(rng.integers(0, 3)) if slot else int(rng.integers(1, 3))):
            words = rng.choice(["a", "b", "cé", "z", "東", "𝄞"], int(rng.integers(0, 4)), False)
            counts = tuple((str(word), int(rng.integers(1, 5))) for word in words)
            items.append(Terms(version(asked, life_starts[asked]), at_ms, counts))
    for number, asked in enumerate(RANKED):
        if slot and rng.random() < 0.5:
            continue
        seen = []
        for i in range(int(rng.integers(0, 3))):
            often = (int(rng.integers(0, 3)), int(rng.integers(1, 3)))
            name = int(rng.integers(9)) if rng.random() < 0.7 else f"n{rng.integers(9)}"
            event = (slot + 1, 1_000 * position + 10 * number + i)
            length = sum(often) + int(rng.integers(0, 5))
            distance_m = float(rng.integers(0, 1_000))
            arrival_ms = at_ms - int(rng.integers(0, 50))
            seen.append(Seen(name, event, arrival_ms, length, distance_m, often))
        holders = (len(seen), len(seen))
        tokens = sum(each.length for each in seen)
        now = version(asked, life_starts[asked])
        items.append(
            Ranked(
                asked=now,
                at_ms=at_ms,
                total=len(seen),
                tokens=tokens,
                holders=holders,
                seen=tuple(seen),
            )
        )
    return items


def random_log(rng: np.random.Generator, scripts: list[Script]) -> list[Found]:
    """Returns records that cover the scripts, with repeats, some with several slots."""
    sent = [0] * len(scripts)
    log: list[Found] = []
    while any(sent[script.slot] < script.end for script in scripts):
        intervals: list[tuple[int, int, int, int]] = []
        rows: list[Row] = []
        for script in scripts:
            if rng.random() < 0.5:
                continue
            begin = sent[script.slot]
            if rng.random() < 0.2:
                begin = int(rng.integers(0, begin + 1))
            end = min(script.end, begin + int(rng.integers(0, 15)))
            # The end of a version is in a record of its own.
            ends = [p for p, item in script.items if isinstance(item, End) and p >= begin]
            is_alone = bool(ends) and ends[0] == begin
            if ends:
                end = begin + 1 if is_alone else min(end, ends[0])
            sent[script.slot] = max(sent[script.slot], end)
            interval = interval_of(script, begin, end)
            inside = [
                (script.slot, position_of(p), item) for p, item in script.items if begin <= p < end
            ]
            if is_alone:
                log.append(found_of([interval], inside))
            else:
                intervals.append(interval)
                rows += inside
        log.append(found_of(intervals, rows))
    return log


def interval_of(script: Script, begin: int, end: int) -> tuple[int, int, int, int]:
    return script.slot, position_of(begin), position_of(end), script.time_ms(end)


def random_history(seed: int, *, ends: bool) -> tuple[list[Script], list[Found], list[int]]:
    """Returns scripts, a log of them, and the offsets at which windows end."""
    rng = np.random.default_rng(seed)
    scripts = [random_script(rng, slot, ends=ends) for slot in range(SLOTS)]
    log = random_log(rng, scripts)
    ends_at = sorted({len(log), *rng.integers(0, len(log), ROUNDS).tolist()} - {0})
    return scripts, log, ends_at


def run(
    log: list[Found],
    ends_at: list[int],
    seed: int,
    deaths: dict[int, str],
    *,
    is_save_slow: bool = False,
    checkpoint_interval_ms: int = LIMITS.checkpoint_interval_ms,
) -> tuple[list[SentItems], MergerCluster]:
    """Returns the notifications of windows; at some the merger dies before or after the commit."""
    rng = np.random.default_rng(seed)
    limits = replace(LIMITS, checkpoint_interval_ms=checkpoint_interval_ms)
    if seed % 2:
        # Each step, each end and each few lists take a turn of their own.
        limits = replace(limits, turn_weight_max=1, merged_entries_max=2)
    cluster = MergerCluster(log=log, slots=SLOTS, is_save_slow=is_save_slow, limits=limits)
    sent: list[SentItems] = []
    for number, end in enumerate(ends_at):
        death = deaths.get(number)
        # The slots' logs hold an end long before everything in them has been taken, or long after
        # the first slot reported it.
        cluster.registry_saved(2 * number)
        cluster.read(end, rng)
        if death == "before":
            cluster.start()
            cluster.read(end, rng)
        sent.append(cluster.commit(is_informed=death != "after"))
        if death is not None:
            if death == "later":
                cluster.save()
            cluster.start()
    return sent, cluster


# --- notifications are findings


@pytest.mark.parametrize("seed", range(20))
def test_each_step_is_sent_once_with_the_counts_of_all_slots(seed: int) -> None:
    scripts, log, ends_at = random_history(seed, ends=False)
    sent, _ = run(log, ends_at, seed, {})
    complete_ms = min(script.time_ms(script.end) for script in scripts)
    for asked, k in zip(TERMS, (2, 50), strict=True):
        wanted: dict[int, dict[str, int]] = {}
        for script in scripts:
            for _, item in script.items:
                if isinstance(item, Terms) and item.asked is asked and item.at_ms < complete_ms:
                    counts = wanted.setdefault(item.at_ms, defaultdict(int))
                    for word, count in item.counts:
                        counts[word] += count
        expected = [
            ListChange(
                subscriber="s0",
                query=asked.id,
                at_ms=at_ms,
                entries=tuple(
                    (word, float(count))
                    for word, count in sorted(counts.items(), key=lambda each: (-each[1], each[0]))[
                        :k
                    ]
                ),
            )
            for at_ms, counts in sorted(wanted.items())
        ]
        assert lists_for(sent, asked) == expected, f"seed={seed}"


def lists_for(sent_windows: list[SentItems], asked: ListVersion) -> list[ListChange]:
    return [
        each
        for window in sent_windows
        for each in window
        if isinstance(each, ListChange) and each.query == asked.id
    ]


@pytest.mark.parametrize("seed", range(20))
def test_ranked_lists_are_sent_when_their_ids_change(seed: int) -> None:
    scripts, log, ends_at = random_history(seed, ends=False)
    sent, _ = run(log, ends_at, seed, {})
    complete_ms = min(script.time_ms(script.end) for script in scripts)
    for asked, k in zip(RANKED, (1, 3), strict=True):
        parts: dict[int, list[Ranked]] = defaultdict(list)
        for script in scripts:
            for _, item in script.items:
                if isinstance(item, Ranked) and item.asked is asked and item.at_ms < complete_ms:
                    parts[item.at_ms].append(item)
        expected: list[Any] = []
        before: list[Any] = []
        known: set[Any] = set()
        for at_ms, of_step in sorted(parts.items()):
            best = ranked_by_hand(of_step, at_ms)[:k]
            if [seen.object for _, seen in best] == before:
                continue
            before = [seen.object for _, seen in best]
            new = [(s.object, f"text of {s.object}") for _, s in best if s.event not in known]
            known = {seen.event for _, seen in best}
            entries = tuple((seen.object, score) for score, seen in best)
            expected.append(
                ListChange(
                    subscriber="s1", query=asked.id, at_ms=at_ms, entries=entries, new=tuple(new)
                )
            )
        assert lists_for(sent, asked) == expected, f"seed={seed}"


def ranked_by_hand(parts: list[Ranked], at_ms: int) -> list[tuple[float, Seen]]:
    """Returns the contract's score, one object at a time."""
    seen = [each for part in parts for each in part.seen]
    total, tokens = sum(p.total for p in parts), sum(p.tokens for p in parts)
    holders = [sum(p.holders[i] for p in parts) for i in range(2)]
    if not seen:
        return []
    texts = []
    for each in seen:
        text = 0.0
        for often, held in zip(each.frequencies, holders, strict=True):
            idf = np.log(1 + (total - held + 0.5) / (held + 0.5))
            norm = 1.2 * (0.25 + 0.75 * each.length / (tokens / total))
            text += idf * often * 2.2 / (often + norm)
        texts.append(text)
    scored = []
    for text, each in zip(texts, seen, strict=True):
        age_ms = at_ms - each.arrival_ms
        parts_of = text / max(texts), 1 - each.distance_m / 1_000, 0.5 ** (age_ms / 86_400_000)
        scored.append((float(np.round(sum(parts_of) / 3, 9)), each))
    number = {each: _number(each) for _, each in scored}
    return sorted(scored, key=lambda pair: (-pair[0], number[pair[1]], pair[1].event))


def _number(seen: Seen) -> int:
    found = found_of([(0, 0, 1, 0)], [(0, 0, Match(plain("p"), seen.object))])
    return int(found.objects.ids[0])


@pytest.mark.parametrize("seed", range(20))
def test_knn_lists_lead_to_the_nearest_of_all(seed: int) -> None:
    scripts, log, ends_at = random_history(seed, ends=False)
    sent, _ = run(log, ends_at, seed, {})
    for asked, k in zip(KNN, (1, 3, 5), strict=True):
        lists = lists_for(sent, asked)
        held: set[tuple[int | str, float]] = set()
        for each in lists:
            now = set(each.entries)
            assert {name for name, _ in each.new} >= {name for name, _ in now - held}
            assert {name for name, _ in held - now} <= set(each.removed)
            assert now != held or each.new, f"seed={seed}"
            held = now
        seen = [
            (item.distance_m, _number_of(item), script.slot, position, item.object)
            for script in scripts
            for position, item in script.items
            if isinstance(item, Match) and item.asked is asked
        ]
        wanted = tuple((each[4], each[0]) for each in sorted(seen)[:k])
        assert (lists[-1].entries if lists else ()) == wanted, f"seed={seed}"


def _number_of(match: Match) -> int:
    found = found_of([(0, 0, 1, 0)], [(0, 0, Match(plain("p"), match.object))])
    return int(found.objects.ids[0])


# --- takeover


# Each history with one way to save: a run reads all of it again for each death.
@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_r5_a_take_over_at_any_window_sends_the_same(seed: int, ends: bool) -> None:
    is_save_slow = seed % 2 == 0
    _, log, ends_at = random_history(seed, ends=ends)
    wanted, _ = run(log, ends_at, seed, {}, checkpoint_interval_ms=3_000)
    assert sum(isinstance(each, ListChange) for window in wanted for each in window) > 5
    for window in range(len(ends_at)):
        for death in ("before", "after", "later"):
            sent, _ = run(
                log,
                ends_at,
                seed,
                {window: death},
                is_save_slow=is_save_slow,
                checkpoint_interval_ms=3_000,
            )
            assert sent == wanted, f"seed={seed}, {death} window {window} is committed"


@pytest.mark.parametrize("seed", range(40))
def test_r5_mergers_that_die_repeatedly_send_the_same(seed: int) -> None:
    _, log, ends_at = random_history(seed, ends=True)
    rng = np.random.default_rng(seed)
    deaths = {
        window: str(rng.choice(["before", "after", "later"]))
        for window in range(len(ends_at))
        if rng.random() < 0.6
    }
    is_save_slow = bool(rng.random() < 0.5)
    wanted, _ = run(log, ends_at, seed, {}, checkpoint_interval_ms=1_000)
    sent, cluster = run(
        log, ends_at, seed, deaths, is_save_slow=is_save_slow, checkpoint_interval_ms=1_000
    )
    assert sent == wanted, f"seed={seed}"
    # Each merger that died leaves at most one unknown blob.
    assert len(cluster.blobs) <= cluster.mergers + 2


def test_r5_a_merger_that_stood_still_does_not_restart_its_lists() -> None:
    # init: it read `control` up to its grant; meanwhile others have sent lists.
    _, log, ends_at = random_history(0, ends=False)
    _, cluster = run(log, ends_at, 0, {})
    stale = MergerMachine("m1", MergerSettings(cluster.slots, limits=LIMITS))
    granted = next(at for at, each in enumerate(cluster.control) if isinstance(each, Granted))
    for at, declaration in enumerate(cluster.control[: granted + 1]):
        effects = stale.step(ControlRead(at, declaration), 0)
    (load,) = (effect for effect in effects if isinstance(effect, Load))
    progresses = [each for each in cluster.written if isinstance(each, Progress)]
    assert progresses[-1].has_lists

    # test
    loaded = cluster.loaded(load.epoch, load.name, load.offset)
    assert stale.step(loaded, 0) == []

    # check: it sends nothing, above all no checkpoint of nothing.
    assert stale.windows == {}
    again = [
        effect
        for at, declaration in enumerate(cluster.control[granted + 1 :], granted + 1)
        for effect in stale.step(ControlRead(at, declaration), 0)
    ]
    assert {type(effect) for effect in again} <= {Unfollow, Fence, Load}
    assert any(isinstance(effect, Load) and effect.name for effect in again)


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_kept_of_queries_that_ended_in_all_slots(seed: int) -> None:
    _, log, ends_at = random_history(seed, ends=True)
    _, cluster = run(log, [*ends_at, len(log)], seed, {})
    cluster.registry_saved(100)
    for _ in range(2):
        cluster.read(len(log), np.random.default_rng(seed))
    lists = cluster.machine.windows[0].lists
    assert (len(lists.knn), len(lists.steps)) == (0, 0), f"seed={seed}"
    assert not lists.steps.has_pending
    assert len(lists.versions) == 0


def test_r5_without_the_state_a_successor_sends_other_lists(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The tests above can fail: with a successor that continues only from the progress.
    _, log, ends_at = random_history(0, ends=False)
    wanted, _ = run(log, ends_at, 0, {})
    loaded = MergerMachine._loaded

    def forgetful(self: MergerMachine, event: object, now_ms: int) -> object:
        effects = loaded(self, event, now_ms)  # type: ignore[arg-type]
        for window in self.windows.values():
            window.lists.knn = type(window.lists.knn)()
        return effects

    monkeypatch.setattr(MergerMachine, "_loaded", forgetful)
    deaths = dict.fromkeys(range(len(ends_at)), "later")
    sent, _ = run(log, ends_at, 0, deaths, checkpoint_interval_ms=1_000)
    assert sent != wanted
