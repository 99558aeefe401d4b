"""The filter at the router (Tornado 3.1): the objects it holds back, and who declares keywords."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pytest

from sirocco.index.routing.keyword_slots import ANY_TERM, set_of
from sirocco.model.text import TermColumns, term_hash
from sirocco.protocol.contract.control_records import Granted, LeaderElected
from sirocco.protocol.contract.effects import (
    Answer,
    Append,
    ControlRead,
    Effect,
    Entry,
    Follow,
    Load,
    Loaded,
    Outcome,
    Polled,
    Tick,
)
from sirocco.protocol.contract.messages import (
    INTAKE,
    REGISTRY,
    Change,
    IntakeObjects,
    Keywords,
    Prepare,
    Retire,
    Routed,
)
from sirocco.protocol.router.limits import LIMITS, RouterLimits
from sirocco.protocol.router.machine import RouterMachine, RouterSettings
from sirocco.protocol.router.map_change.query_copies import copy
from sirocco.protocol.router.objects.intake_router import IntakeRouter
from sirocco.protocol.router.objects.keyword_filter import KeywordFilter
from sirocco.protocol.router.queries.keyword_summary import KeywordSummary
from sirocco.protocol.router.queries.registry_partition import Registry
from sirocco.schemes.map.routing import ObjectRoutes
from tests.support.registry_log import SLOTS_COUNT, query
from tests.support.values import (
    change_of,
    map_activated,
    random_members,
    request_of,
    taken_of,
    uniform_routing,
)

EPOCH = 7
INTAKES = 2


def keywords(
    terms: dict[int, set[int]], partition: int = 0, epoch: int = 1, **more: Any
) -> Keywords:
    sets = np.array([set_of(slots, 1) for slots in terms.values()], np.uint64).reshape(-1, 1)
    return Keywords(
        partition=partition, epoch=epoch, terms=np.array(list(terms), np.uint64), slots=sets, **more
    )


def whole(terms: dict[int, set[int]], partition: int = 0, epoch: int = 1) -> Keywords:
    return keywords(terms, partition, epoch, begins=True, ends=True)


def kept(
    summaries: KeywordFilter,
    texts: list[list[int]],
    routes: list[tuple[int, int]],
    homes: list[bool] | None = None,
) -> list[bool]:
    """Returns whether each route (object, slot) is kept; `homes` for maps that split words."""
    offsets = np.cumsum([0, *map(len, texts)])
    flat = np.array([term for text in texts for term in text], np.uint64)
    counts = np.ones(len(flat), np.uint16)
    terms = TermColumns(flat, offsets, np.diff(offsets).astype(np.int32), counts)
    rows = np.array([row for row, _ in routes], np.int32)
    slots = np.array([slot for _, slot in routes], np.int32)
    keep = np.ones(len(routes), np.bool_)
    at_home = None if homes is None else np.array(homes)
    summaries.mark(terms, ObjectRoutes(rows, slots, slots, at_home), 0, len(routes), keep)
    return keep.tolist()


# --- the knowledge of an intake partition


@dataclass
class Model:
    """One registry partition, by dictionaries."""

    known: dict[int, set[int]] = field(default_factory=dict)
    following: dict[int, set[int]] | None = None
    epoch: int = -1
    is_whole: bool = False

    def add(self, sent: Keywords) -> None:
        is_former = sent.epoch < self.epoch
        self.epoch = max(sent.epoch, self.epoch)
        if sent.is_withdrawn:
            self.is_whole = self.is_whole and is_former
            return
        if sent.begins and not is_former:
            self.following = {}
        for each in (self.known, self.following):
            for term, bits in zip(sent.terms.tolist(), sent.slots[:, 0].tolist(), strict=True):
                if each is not None:
                    each.setdefault(term, set()).update(s for s in range(64) if bits >> s & 1)
        if sent.ends and not is_former and self.following is not None:
            self.known, self.following, self.is_whole = self.following, None, True


def random_words(dice: Random) -> Iterator[Keywords]:
    """Returns declarations of owners, some of which were paused."""
    for _ in range(dice.randint(1, 40)):
        published = {dice.choice([ANY_TERM, *range(1, 12), *range(1, 12)]): {dice.randrange(9)}}
        yield keywords(
            {} if dice.random() < 0.2 else published,
            dice.randrange(2),
            dice.choice([3, 5, 5, 9]),
            begins=dice.random() < 0.3,
            ends=dice.random() < 0.4,
            is_withdrawn=dice.random() < 0.03,
        )


@pytest.mark.parametrize("seed", range(25))
def test_the_filter_keeps_keywords_of_all_owners_since_the_last_complete_set(seed: int) -> None:
    dice = Random(seed)
    print(f"seed {seed}")
    summaries, models = KeywordFilter(9, 2), [Model(), Model()]
    texts = [dice.sample(range(1, 14), dice.randint(0, 2)) for _ in range(40)]
    routes = [(row, dice.randrange(9)) for row in range(40)]
    for each in random_words(dice):
        summaries.add(each)
        models[each.partition].add(each)
        if dice.random() < 0.2:
            # A successor continues from a checkpoint.
            state = summaries.state()
            summaries = KeywordFilter(9, 2)
            summaries.restore(state)
        is_whole = all(model.is_whole for model in models)
        assert summaries.is_whole == is_whole
        expected = [
            not is_whole
            or any(
                slot in model.known.get(term, ())
                for model in models
                for term in [ANY_TERM, *texts[row]]
            )
            for row, slot in routes
        ]
        assert kept(summaries, texts, routes) == expected


def test_beyond_its_bound_a_slot_takes_everything() -> None:
    summaries = KeywordFilter(9, 1, bytes_max=34 * 3)
    summaries.add(whole({1: {0}, 2: {1}, 3: {2}}))
    assert kept(summaries, [[9]] * 4, [(0, 0), (1, 1), (2, 2), (3, 3)]) == [False] * 4
    summaries.add(keywords({4: {3}}))
    again = KeywordFilter(9, 1, bytes_max=34 * 3)
    again.restore(summaries.state())
    for each in (summaries, again):
        assert kept(each, [[9]] * 4, [(0, 0), (1, 1), (2, 2), (3, 3)]) == [False] * 3 + [True]
    # Republished, with room for all.
    again.add(whole({1: {0}, 4: {3}}))
    assert kept(again, [[9], [4]], [(0, 3), (1, 3)]) == [False, True]


def test_an_open_slot_takes_what_comes_by_a_term() -> None:
    """A query that has lost its keywords keeps its former slots (ADR 17)."""
    summaries = KeywordFilter(9, 1)
    summaries.add(whole({ANY_TERM: {2}, 5: {3}}))
    routes = [(0, 2), (0, 3), (1, 2), (1, 3)]
    # Slot 2 is no object's home: objects arrive there because the map routes one of their terms
    # there.
    assert kept(summaries, [[7], [5]], routes, [False, True] * 2) == [True, False, True, True]


def test_keywords_for_another_number_of_slots_open_all_slots() -> None:
    summaries = KeywordFilter(9, 1)
    summaries.add(whole({}))
    assert kept(summaries, [[1]], [(0, 0)]) == [False]
    summaries.add(
        Keywords(
            partition=0, epoch=1, terms=np.array([1], np.uint64), slots=np.zeros((1, 2), np.uint64)
        )
    )
    assert kept(summaries, [[1]], [(0, 0)]) == [True]


# --- objects


def intake_router(partitions: int = 1) -> IntakeRouter:
    made = IntakeRouter(slots=SLOTS_COUNT, event_time=False, summarised=1)
    made.use({1: uniform_routing(SLOTS_COUNT, SLOTS_COUNT)}, 1)
    for partition in range(partitions):
        made.own(partition, 0, None, 0)
    return made


def sent(effects: list[Effect]) -> set[tuple[int, int]]:
    """Returns (slot, object id) of the records for slots."""
    return {
        (slot, one) for slot, routed in routed_in(effects) for one in routed.objects.ids.tolist()
    }


def routed_in(effects: list[Effect]) -> list[tuple[int, Routed]]:
    """Returns slot and message of each append."""
    found = []
    for effect in effects:
        assert isinstance(effect, Append)
        assert isinstance(effect.message, Routed)
        found.append((effect.partition, effect.message))
    return found


COFFEE, EVERYWHERE = term_hash("coffee"), set(range(SLOTS_COUNT))


def test_objects_go_by_what_stands_before_them_in_the_log() -> None:
    one = {"lon": 0.0, "lat": 0.0, "text": "coffee"}
    router = intake_router()
    log: list[IntakeObjects | Keywords] = [
        taken_of(1, 1, [one | {"id": 1}]),
        whole({}),
        taken_of(1, 2, [one | {"id": 2}]),
        keywords({COFFEE: EVERYWHERE}),
        taken_of(1, 3, [one | {"id": 3}, one | {"id": 4, "text": "tea"}]),
        whole({}),
        taken_of(1, 5, [one | {"id": 5}]),
        keywords({ANY_TERM: EVERYWHERE}),
    ]
    for offset, record in enumerate(log):
        router.add(0, offset, record, 0)
    # All in one flush; a declaration after the last object counts for the next.
    assert {one for _, one in sent(router.flush(100))} == {1, 3}
    assert (router.objects_total, router.held_back_total) == (5, 3)
    router.add(0, len(log), taken_of(1, 6, [one | {"id": 6, "text": "tea"}]), 100)
    assert {one for _, one in sent(router.flush(200))} == {6}


@pytest.mark.parametrize("seed", range(10))
def test_a_successor_sends_what_its_predecessor_sent(seed: int) -> None:
    dice, rng = Random(seed), np.random.default_rng(seed)
    print(f"seed {seed}")
    logs: list[list[IntakeObjects | Keywords]] = []
    words = [term_hash(word) for word in ("coffee", "pizza", "fire", "light")]
    for source in range(2):
        log: list[IntakeObjects | Keywords] = [whole({})]
        number = 1
        for _ in range(60):
            if dice.random() < 0.3:
                published = {dice.choice(words): {dice.randrange(SLOTS_COUNT)}}
                is_whole = dice.random() < 0.1
                log.append(whole(published) if is_whole else keywords(published))
                continue
            count = dice.randint(1, 8)
            ids = range(1_000 * source + number, 1_000 * source + number + count)
            log.append(taken_of(source + 1, number, [random_members(rng, each) for each in ids]))
            number += count
        logs.append(log)

    def run(router: IntakeRouter, begins: list[int], flush_share: float) -> set[tuple[int, int]]:
        found: set[tuple[int, int]] = set()
        for offset in range(min(begins), 61):
            for source, log in enumerate(logs):
                if offset >= begins[source]:
                    router.add(source, offset, log[offset], 0)
            if dice.random() < flush_share:
                found |= sent(router.flush(0, at_once=True))
        return found | sent(router.flush(0, at_once=True))

    first = run(intake_router(2), [0, 0], 0.1)
    assert run(intake_router(2), [0, 0], 0.9) == first
    half = intake_router(2)
    cut = dice.randint(1, 60)
    for offset in range(cut):
        for source, log in enumerate(logs):
            half.add(source, offset, log[offset], 0)
    before = sent(half.flush(0, at_once=True))
    again = intake_router(0)
    for source in range(2):
        again.own(source, cut, half.sources[source].state(), 0)
    assert before | run(again, [cut, cut], 0.5) == first
    assert len(first) < sum(
        len(r.objects) for log in logs for r in log if isinstance(r, IntakeObjects)
    )


def test_a_slot_that_gets_no_object_gets_its_marks() -> None:
    router = intake_router()
    router.add(0, 0, whole({}), 0)
    router.add(0, 1, taken_of(1, 1, [{"id": 1, "lon": 0.0, "lat": 0.0}]), 0)
    assert router.flush(100) == []
    marks = router.marks([0])
    ends = [mark.intervals.ends.tolist() for _, mark in routed_in(marks)]
    assert ends == [[router.sources[0].position]] * SLOTS_COUNT


# --- which process declares keywords


class Owner:
    """An owner of a registry partition, and the intake partitions to which it appends."""

    def __init__(
        self,
        epoch: int = EPOCH,
        state: dict[str, Any] | None = None,
        offset: int = 0,
        limits: RouterLimits = LIMITS,
    ):
        self.registry = Registry(partition=3, offset=offset, floor=offset, epoch=epoch)
        self.registry.keyword_summary = KeywordSummary(
            3, epoch, SLOTS_COUNT, INTAKES, self.registry.live, limits
        )
        if state is not None:
            self.registry.restore(state)
        self.routings = {1: uniform_routing(SLOTS_COUNT, SLOTS_COUNT)}
        self.records: dict[int, Change | Prepare | Retire] = {}
        self.intakes = [KeywordFilter(SLOTS_COUNT, 4) for _ in range(INTAKES)]
        self.sent: list[Keywords] = []
        self.order: list[str] = []
        self.answers: list[Outcome] = []

    @property
    def keyword_summary(self) -> KeywordSummary:
        assert self.registry.keyword_summary is not None
        return self.registry.keyword_summary

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Append("registry", 3, Change() as change):
                    self.records[len(self.records)] = change
                case Append("intake", partition, Keywords() as sent):
                    self.intakes[partition].add(sent)
                    self.order.append(f"keywords {partition}")
                    if partition == 0:
                        self.sent.append(sent)
                case Answer(_, outcomes):
                    self.order.append("answer")
                    self.answers += outcomes

    def read(self) -> None:
        while self.registry.offset < len(self.records):
            offset = self.registry.offset
            self.carry_out(self.registry.read([(offset, self.records[offset])], self.routings))

    def ask(self, action: str, members: dict[str, Any] | str) -> None:
        self.carry_out(self.registry.take_requests(1, (request_of(action, members),)))
        self.read()

    def say_all(self) -> int:
        """Returns the number of pieces."""
        pieces = 0
        while self.keyword_summary.is_due:
            before = len(self.sent)
            self.carry_out(self.registry.publish_summary(0))
            self.read()
            pieces += len(self.sent) - before
        return pieces

    def known(self) -> dict[int, set[int]]:
        """Returns the newest record of each keyword since all was last declared."""
        found: dict[int, set[int]] = {}
        begins = [i for i, each in enumerate(self.sent) if each.begins]
        for each in self.sent[begins[-1] if begins else 0 :]:
            for term, bits in zip(each.terms.tolist(), each.slots[:, 0].tolist(), strict=True):
                found.setdefault(term, set()).update(s for s in range(64) if bits >> s & 1)
        return found


def text(
    query_id: str, expression: str | None, west: float = -180, east: float = 180, **more: Any
) -> dict[str, Any]:
    own = {} if expression is None else {"text": expression}
    return query(query_id, west, east, **own, **more)


def test_keywords_stand_in_every_intake_partition_before_the_answer() -> None:
    owner = Owner()
    owner.ask("register", text("q", "coffee"))
    assert owner.order == ["keywords 0", "keywords 1", "answer"]
    assert owner.known() == {COFFEE: EVERYWHERE}


def test_published_keywords_are_not_republished() -> None:
    owner = Owner()
    owner.ask("register", text("wide", "coffee"))
    owner.ask("register", text("narrow", "coffee", -179, -178))
    owner.ask("update", text("narrow", "coffee", -170, -160))
    assert len(owner.sent) == 1
    owner.ask("register", text("tea", "tea", -179, -178))
    (published,) = owner.sent[1:]
    assert (published.terms.tolist(), published.slots.tolist()) == ([term_hash("tea")], [[1]])


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        (text("q", "coffee OR (tea AND NOT milk)"), {"coffee", "tea"}),
        (text("q", None), None),
        (text("q", None, where={"status": "open"}), None),
        (text("q", "coffee", track="vehicle"), None),
        ({"id": "q", "kind": "knn", "mode": "continuous", "k": 1, "text": "coffee",
          "point": {"lon": 0, "lat": 0}}, None),
    ],
)  # fmt: skip
def test_each_alternative_needs_a_keyword(
    members: dict[str, Any], expected: set[str] | None
) -> None:
    owner = Owner()
    owner.ask("register", members)
    words = {ANY_TERM} if expected is None else {term_hash(word) for word in expected}
    assert owner.known().keys() == words


def test_of_a_conjunction_one_keyword_is_enough() -> None:
    owner = Owner()
    owner.ask("register", text("q", "coffee AND free"))
    (key,) = owner.known()
    assert key in {COFFEE, term_hash("free")}


def test_slots_that_an_owner_takes_as_open_are_published_as_open() -> None:
    # Room for two keywords.
    owner = Owner(limits=RouterLimits(keyword_table_bytes_max=34 * 2))
    for word in ("a", "b", "c", "d"):
        owner.ask("register", text(word, word))
    # The last one was not declared, since its slots need every object: so it has to be known.
    assert term_hash("d") not in owner.known()
    assert owner.known()[ANY_TERM] == set(range(SLOTS_COUNT))
    owner.say_all()
    assert owner.known()[ANY_TERM] == set(range(SLOTS_COUNT))


def test_an_owner_publishes_all_keywords_when_nothing_else_can_become_valid() -> None:
    owner = Owner(limits=RouterLimits(keyword_record_bytes_max=32, obsolete_queries_min=2))
    # A predecessor's record, read before the owner's first one.
    former = change_of(request_of("register", text("former", "tea")))
    owner.records[0] = former
    owner.read()
    for word in ("a", "b", "c", "d"):
        owner.records[len(owner.records)] = change_of(request_of("register", text(word, word)))
        owner.read()
    assert not owner.keyword_summary.is_published
    assert owner.registry.validation.epoch_seen < EPOCH
    # First a record of its own; then five keywords in three pieces.
    assert owner.say_all() == 3
    assert owner.registry.validation.epoch_seen == EPOCH
    pieces = owner.sent[-3:]
    assert [(item.begins, item.ends) for item in pieces] == [
        (True, False),
        (False, False),
        (False, True),
    ]
    words = {term_hash(word) for word in ("tea", "a", "b", "c", "d")}
    assert owner.known().keys() == words
    for each in ("a", "b", "c"):
        assert not owner.keyword_summary.is_due
        owner.ask("unregister", each)
    owner.ask("register", text("b", "b"))
    # In the middle of it another query is registered.
    owner.carry_out(owner.registry.publish_summary(0))
    owner.ask("register", text("e", "e"))
    owner.say_all()
    assert owner.known().keys() == {term_hash(word) for word in ("tea", "d", "b", "e")}
    assert [outcome.error for outcome in owner.answers] == [None] * len(owner.answers)


def test_pending_keywords_are_published_at_once_for_a_query_that_arrives() -> None:
    # If the owner ends before it has declared all, nobody else does before objects arrive.
    limits = RouterLimits(keyword_record_bytes_max=32)
    words = ("a", "b", "c", "d")
    former = Owner()
    for word in words:
        former.ask("register", text(word, word))
    owner = Owner(EPOCH + 1, former.registry.state(), former.registry.offset, limits)
    owner.records = dict(former.records)
    owner.keyword_summary.is_published = False
    while not owner.sent:
        owner.carry_out(owner.registry.publish_summary(0))
        owner.read()
    assert (owner.sent[-1].begins, owner.sent[-1].ends) == (True, False)
    waiting = [word for word in words if term_hash(word) not in owner.sent[-1].terms.tolist()]
    assert len(waiting) == 2
    before = len(owner.sent)
    owner.order.clear()
    owner.ask("register", text("meanwhile", waiting[1]))
    assert owner.order == ["keywords 0", "keywords 1", "answer"]
    (published,) = owner.sent[before:]
    assert published.terms.tolist() == [term_hash(waiting[1])]
    owner.say_all()
    assert owner.known().keys() == {term_hash(word) for word in words}


def test_a_deposed_owner_publishes_nothing() -> None:
    owner = Owner()
    owner.ask("register", text("q", "coffee"))
    owner.registry.validation.epoch_seen = EPOCH + 1
    assert owner.keyword_summary.is_due
    assert owner.registry.publish_summary(0) == []


def test_a_successor_publishes_keywords_that_it_reads_and_keeps_the_rest() -> None:
    owner = Owner()
    owner.ask("register", text("one", "coffee OR tea"))
    owner.ask("register", text("two", "milk", -179, -178))
    owner.say_all()
    state = dict(owner.registry.state())
    offset = len(owner.records)
    other = Owner(EPOCH + 1, state, offset)
    other.records = dict(owner.records)
    assert other.keyword_summary.is_published
    assert not other.keyword_summary.is_due
    # The same keyword again: a predecessor may have withdrawn it meanwhile.
    other.ask("register", text("three", "coffee"))
    assert other.known() == {COFFEE: EVERYWHERE}
    other.keyword_summary.is_published = False
    other.say_all()
    milk = term_hash("milk")
    assert other.known() == {COFFEE: EVERYWHERE, term_hash("tea"): EVERYWHERE, milk: {0}}


def test_a_state_of_before_makes_its_queries_need_everything() -> None:
    owner = Owner()
    owner.ask("register", text("q", "coffee", -179, -178))
    state = {k: v for k, v in owner.registry.state().items() if not k.startswith("summary")}
    other = Owner(EPOCH + 1, state, len(owner.records))
    other.records = dict(owner.records)
    other.say_all()
    assert other.known() == {ANY_TERM: {0}}


def test_a_copy_for_another_map_brings_its_keywords() -> None:
    owner = Owner()
    owner.ask("register", text("q", "coffee", -179, -178))
    owner.say_all()
    # Another map, which puts the first tile into another slot.
    following = uniform_routing(SLOTS_COUNT, 3 * SLOTS_COUNT)
    owner.routings[2] = following
    owner.records[len(owner.records)] = Prepare(2)
    owner.read()
    owner.keyword_summary.is_published = False
    # The slots of queries that are not copied yet are unknown.
    assert owner.registry.publish_summary(0) == []
    reread = [(o, r) for o, r in owner.records.items() if isinstance(r, Change)]
    owner.carry_out(copy(owner.registry, reread, owner.routings))
    (row,) = owner.registry.live.places().tolist()
    assert owner.known()[COFFEE] == set(owner.registry.live.slots(row))


# --- a router


class Back:
    """The back of a router that owns a registry partition."""

    def __init__(self, *, store: bool, state: dict[str, Any] | None = None) -> None:
        settings = RouterSettings(
            SLOTS_COUNT, intake_partitions=INTAKES, registry_partitions=1, store=store
        )
        self.machine = RouterMachine("m", settings)
        self.control(LeaderElected("c"))
        self.control(map_activated(0, slots=SLOTS_COUNT))
        (load,) = self.control(Granted(0, REGISTRY, 0, "m"))
        assert isinstance(load, Load)
        self.loaded = self.machine.step(
            Loaded(topic=REGISTRY, partition=0, epoch=load.epoch, offset=0, state=state), 0
        )

    def control(self, declaration: Any) -> list[Effect]:
        offset = self.machine.holdings.view.next_offset
        return self.machine.step(ControlRead(offset, declaration), 0)

    def tick(self, now_ms: int) -> list[Append]:
        effects = self.machine.step(Tick(), now_ms)
        return [each for each in effects if isinstance(each, Append)]


def test_a_router_publishes_all_keywords_after_a_record_of_its_own() -> None:
    back = Back(store=False)
    assert back.loaded == [Follow(REGISTRY, 0, 0)]
    (probe,) = back.tick(LIMITS.summary_interval_ms)
    assert probe.topic == REGISTRY
    assert back.tick(2 * LIMITS.summary_interval_ms) == []
    back.machine.step(Polled((Entry(REGISTRY, 0, 0, probe.message),)), 0)
    published = back.tick(3 * LIMITS.summary_interval_ms)
    assert [(each.topic, each.partition) for each in published] == [(INTAKE, 0), (INTAKE, 1)]
    for each in published:
        assert isinstance(each.message, Keywords)
        assert (each.message.begins, each.message.ends) == (True, True)
    assert back.tick(4 * LIMITS.summary_interval_ms) == []


def test_a_router_with_a_store_withdraws_published_keywords() -> None:
    owner = Owner()
    owner.say_all()
    *withdrawals, follow = Back(store=True, state=dict(owner.registry.state())).loaded
    assert isinstance(follow, Follow)
    summaries = KeywordFilter(SLOTS_COUNT, 1)
    summaries.add(whole({}))
    for partition, each in enumerate(withdrawals):
        assert isinstance(each, Append)
        assert (each.topic, each.partition) == (INTAKE, partition)
        assert isinstance(each.message, Keywords)
        summaries.add(each.message)
        assert not summaries.is_whole
    assert len(withdrawals) == INTAKES
    # A router that declares nothing has nothing to withdraw.
    assert len(Back(store=True).loaded) == 1
