"""A coordinator's conclusions from the map store, and none while it is lost (rule R4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from sirocco.protocol.contract.effects import Event, Member, MembersSeen, Warmed
from sirocco.runtime.process.membership import LEASE_TIMES
from sirocco.runtime.service import Parts
from sirocco.runtime.settings import ClusterSettings
from sirocco.services.coordinator import service as service_module
from sirocco.services.coordinator.service import LEADER_LEASE, CoordinatorService
from sirocco.transport.archive import MemoryArchive
from sirocco.transport.errors import TransportUnavailable
from sirocco.transport.memory_log import MemoryLog
from sirocco.transport.memory_map_store import MemoryMapStore


class Watch:
    """A coordinator that looks on request, at a time that a test advances."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, log: MemoryLog) -> None:
        settings = ClusterSettings(slots=2)
        log.create_topics(settings.topics())
        self.store = MemoryMapStore()
        self._monkeypatch = monkeypatch
        self.service = CoordinatorService(
            Parts(settings=settings, log=log, store=self.store, archive=MemoryArchive()),
            b"a map",
            1,
        )
        self.now_ms = 1_000_000
        self.posted: list[Event] = []
        monkeypatch.setattr(service_module, "monotonic_ms", lambda: self.now_ms)
        monkeypatch.setattr(self.service.worker, "post", self.posted.append)

    def look(self) -> list[Event]:
        """Returns the events for the machine of one turn of the watching thread."""
        self.posted.clear()
        turns = iter([False, True])
        self._monkeypatch.setattr(self.service._stopping, "wait", lambda _s: next(turns))
        self.service.worker.caught_up.set()
        self.service._run()
        return list(self.posted)

    def lease(self, *members: str) -> None:
        for member in members:
            assert self.store.acquire(f"lease/member/{member}", member, LEASE_TIMES.lease_ms)

    def lose(self) -> None:
        """Empties the store at once, while it still answers."""
        self.store = MemoryMapStore()
        object.__setattr__(self.service.parts, "store", self.store)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    log = MemoryLog()
    yield Watch(monkeypatch, log)
    log.close()


SEEN = (Member("evaluator-a", "evaluator"), Member("router-a", "router"))


def test_the_holder_of_the_lease_leads_and_sees_live_members(watch: Watch) -> None:
    watch.lease("evaluator-a", "router-a")
    assert watch.look() == [MembersSeen(SEEN, leading=True)]
    assert watch.look() == [MembersSeen(SEEN, leading=True)]


def test_an_unforeseen_error_does_not_end_the_watch(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch.lease("evaluator-a", "router-a")
    with monkeypatch.context() as fails:
        fails.setattr(service_module, "seen", lambda _store: [].pop())
        assert watch.look() == []
    assert watch.look() == [MembersSeen(SEEN, leading=True)]


def test_members_that_left_are_distinguished_from_those_that_died(watch: Watch) -> None:
    watch.lease("evaluator-a", "router-a")
    assert watch.store.acquire("lease/leaving/evaluator-b", "evaluator-b", LEASE_TIMES.lease_ms)
    assert watch.look() == [MembersSeen(SEEN, leading=True, departed=frozenset({"evaluator-b"}))]


def test_a_service_of_which_there_never_was_one_is_counted_as_missing(watch: Watch) -> None:
    watch.lease("router-a")
    watch.look()
    watch.service.refresh()
    registry = watch.service.registry
    counts = {
        service: registry.get_sample_value("sirocco_coordinator_members", {"service": service})
        for service in ("router", "evaluator", "merger")
    }
    assert counts == {"router": 1, "evaluator": 0, "merger": 0}


def test_another_holder_means_to_stand_by(watch: Watch) -> None:
    watch.lease("evaluator-a", "router-a")
    watch.store.acquire(LEADER_LEASE, "coordinator-other", LEASE_TIMES.lease_ms)
    assert watch.look() == [MembersSeen(SEEN, leading=False)]


def test_r4_no_member_counts_as_dead_for_a_lease_after_the_store_was_away(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch.lease("evaluator-a", "router-a")
    watch.look()

    def away(_prefix: str) -> dict[str, str]:
        raise TransportUnavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(watch.store, "holders", away)
        assert watch.look() == []
    watch.now_ms += LEASE_TIMES.lease_ms - 1
    assert watch.look() == []
    watch.now_ms += 1
    assert watch.look() == [MembersSeen(SEEN, leading=True)]


def test_r4_no_member_counts_as_dead_for_a_lease_after_the_store_was_emptied_unseen(
    watch: Watch,
) -> None:
    watch.lease("evaluator-a", "router-a")
    watch.look()
    watch.lose()
    watch.lease("router-a")
    assert watch.look() == []
    watch.now_ms += LEASE_TIMES.lease_ms - 1
    assert watch.look() == []
    watch.lease("evaluator-a")
    watch.now_ms += 1
    assert watch.look() == [MembersSeen(SEEN, leading=True)]


def test_r4_a_store_that_returns_as_it_was_before_counts_as_emptied(watch: Watch) -> None:
    watch.lease("evaluator-a", "router-a")
    watch.look()
    key = f"seen/{watch.service.member}"
    before = watch.store.get(key)
    assert before is not None
    watch.look()
    watch.store.put(key, before)
    assert watch.look() == []
    watch.now_ms += LEASE_TIMES.lease_ms
    assert watch.look() == [MembersSeen(SEEN, leading=True)]


class FakeEvaluators:
    """Notes what it is asked for; the map store may be away."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, list[int]]]] = []
        self.is_away = False

    def warm(self, slots: Mapping[str, list[int]]) -> None:
        self.asked.append(("warm", slots))
        if self.is_away:
            raise TransportUnavailable("the map store is away")

    def save(self, slots: Mapping[str, list[int]]) -> None:
        self.asked.append(("save", slots))
        if self.is_away:
            raise TransportUnavailable("the map store is away")


@pytest.mark.parametrize("is_away", [False, True])
def test_past_objects_are_loaded_and_another_checkpoint_written_before_a_slot_moves(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, is_away: bool
) -> None:
    fake = FakeEvaluators()
    fake.is_away = is_away
    monkeypatch.setattr(watch.service, "_evaluators", fake)
    watch.service.machine.unwarmed = {0: ("a", "b"), 1: ("a", "c")}
    watch.service._warm_slots()
    wanted = [
        ("warm", {"b": [0]}),
        ("save", {"a": [0]}),
        ("warm", {"c": [1]}),
        ("save", {"a": [1]}),
    ]
    assert fake.asked == wanted
    # A slot moves also if nobody answers.
    assert watch.posted == [Warmed(0, "b"), Warmed(1, "c")]
    counts = {
        phase: watch.service.registry.get_sample_value(
            "sirocco_coordinator_warming_seconds_count", {"phase": phase}
        )
        for phase in ("warm", "save")
    }
    assert counts == {"warm": 2, "save": 2}


def test_slots_that_move_together_are_saved_when_the_last_of_them_is_warm(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, machine = FakeEvaluators(), watch.service.machine
    monkeypatch.setattr(watch.service, "_evaluators", fake)
    machine.unwarmed = {0: ("a", "c"), 1: ("leaving", "c"), 2: ("b", "c"), 3: ("a", "c")}
    monkeypatch.setattr(machine, "moves_together", lambda slot: slot != 1)

    def warm(slots: Mapping[str, list[int]]) -> None:
        fake.asked.append(("warm", slots))
        if slots == {"c": [2]}:
            # It goes elsewhere.
            machine.unwarmed = {**machine.unwarmed, 2: ("b", "d")}

    monkeypatch.setattr(fake, "warm", warm)
    watch.service._warm_slots()
    assert fake.asked == [
        ("warm", {"c": [0]}),
        ("warm", {"c": [1]}),
        ("save", {"leaving": [1]}),
        ("warm", {"c": [2]}),
        ("warm", {"c": [3]}),
        ("save", {"a": [0, 3]}),
    ]
    assert watch.posted == [Warmed(1, "c"), Warmed(0, "c"), Warmed(3, "c")]


def test_slots_that_wait_for_their_next_owners_are_shown(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch.service, "_evaluators", FakeEvaluators())
    watch.service.machine.unwarmed = {0: ("a", "b"), 1: ("a", "c")}
    watch.look()
    assert watch.service.registry.get_sample_value("sirocco_coordinator_unwarmed_slots") == 2


def test_a_move_that_is_planned_no_more_is_not_prepared(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, machine = FakeEvaluators(), watch.service.machine
    monkeypatch.setattr(watch.service, "_evaluators", fake)
    machine.unwarmed = {0: ("a", "b"), 1: ("a", "b"), 2: ("a", "b")}

    def warm(slots: Mapping[str, list[int]]) -> None:
        fake.asked.append(("warm", slots))
        # Meanwhile one was granted, and one goes elsewhere.
        machine.unwarmed = {2: ("a", "c")}

    monkeypatch.setattr(fake, "warm", warm)
    watch.service._warm_slots()
    assert fake.asked == [("warm", {"b": [0]})]
    assert watch.posted == []
