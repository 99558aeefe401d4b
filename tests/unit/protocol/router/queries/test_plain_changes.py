"""Changes of plain queries as columns lead to the same as single ones."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sirocco.codec.hops import encode
from sirocco.model.query import parse_query
from sirocco.protocol.contract.effects import (
    AppendChanges,
    ChangeRequest,
    Effect,
    Outcomes,
    PlainRequests,
    RemovalRequests,
)
from sirocco.protocol.contract.messages import Change, Installed
from sirocco.protocol.router.limits import LIMITS, RouterLimits
from sirocco.protocol.router.queries.install_records import installed_bytes
from sirocco.protocol.router.queries.place_sets import leaves_of_state
from sirocco.protocol.router.queries.plain_updates import (
    PLAIN_MAX,
    PlainUpdates,
    parts,
)
from sirocco.schemes.map.routing import RoutingArrays
from tests.collisions import FOUND
from tests.support.change_columns import column_entries, column_requests
from tests.support.registry_log import ROUTING, Log, query

NOW_MS = 1_000


class ColumnLog(Log):
    """As `Log`; requests and records are columns wherever they can be."""

    def __init__(
        self,
        offset: int = 0,
        *,
        routing: RoutingArrays = ROUTING,
        limits: RouterLimits = LIMITS,
    ) -> None:
        super().__init__(offset, routing=routing, limits=limits)
        self.appended_as_columns = 0

    def request(self, *requests: ChangeRequest) -> int:
        columns = column_requests(requests)
        return super().request(*requests) if columns is None else self.request_columns(columns)

    def request_columns(self, columns: PlainRequests | RemovalRequests) -> int:
        self._tokens += 1
        self.carry_out(self.registry.take_column_requests(self._tokens, columns))
        return self._tokens

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, AppendChanges):
                assert effect.partition == 3
                changes = effect.changes
                self.records += [changes.change(row) for row in range(len(changes))]
                self.appended_as_columns += len(changes)
            else:
                super().carry_out([effect])

    def outcome_of(self, token: int) -> list[int]:
        return [each.revision for each in self.answers[token]]

    def read(self, upto: int | None = None) -> None:
        while self.registry.offset < (self.head if upto is None else upto):
            begin = self.registry.offset
            batch = [(o, self.records[o - self._begin]) for o in range(begin, upto or self.head)]
            entries = column_entries(3, batch)
            read = [(entry.offset, entry.message) for entry in entries]
            self.carry_out(self.registry.read(read, self._routings))  # type: ignore[arg-type]


def asked(action: str, query_id: str, text: str = "a", west: float = -100.0) -> ChangeRequest:
    members, subscriber = None, ""
    if action != "unregister":
        members, subscriber = parse_query(query(query_id, west, west + 30, text=text)), "s"
    return ChangeRequest(
        action=action, id=query_id, query=members, subscriber=subscriber, start_ms=NOW_MS
    )


@pytest.fixture(name="forwarded")
def _forwarded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns a list that gets how many changes are forwarded as columns."""
    counts: list[int] = []
    forward = PlainUpdates.forward

    def counted(self, offsets, changes):  # type: ignore[no-untyped-def]
        counts.append(len(changes))
        return forward(self, offsets, changes)

    monkeypatch.setattr(PlainUpdates, "forward", counted)
    return counts


def kinds(log: Log, token: int) -> list[object]:
    return [each.revision if each.error is None else each.error.code for each in log.answers[token]]


def installed(log: Log) -> list[tuple[int, object]]:
    """Returns what slots were sent, comparable."""
    return [(slot, _comparable(message)) for slot, message in log.installs]


def _comparable(message: Installed) -> object:
    parts: dict[str, object] = {"subscribers": message.names.subscribers, "floor": message.floor}
    named = {**{n: getattr(message.rows, n) for n in message.rows.__slots__}}
    named |= {n: getattr(message.names, n) for n in ("handles", "ids", "id_offsets")}
    named |= {n: getattr(message, n) for n in ("revisions", "removed", "removed_revisions")}
    named |= {"sinces": message.sinces, "begins_ms": message.begins_ms, "kinds": message.kinds}
    parts |= {n: None if each is None else (each.dtype, each.tolist()) for n, each in named.items()}
    return parts


def test_both_ways_append_forward_and_answer_the_same(forwarded: list[int]) -> None:
    single, columns = Log(), ColumnLog()
    rounds = (
        [asked("register", f"q{n}", f"word{n % 7} b", -150.0 + n) for n in range(60)],
        [asked("update", f"q{n}", f"word{n % 5}", -110.0 + n) for n in range(60)],
        [asked("update", f"q{n}", "c", 10.0) for n in range(0, 60, 2)],
        [asked("unregister", f"q{n}") for n in range(0, 60, 3)],
        [asked("register", f"q{n}", "d", 20.0) for n in range(0, 60, 3)],
    )
    for requests in rounds:
        for log in (single, columns):
            token = log.request(*requests)
            log.read()
        assert kinds(single, token) == kinds(columns, token)
        assert single.records == columns.records
        assert installed(single) == installed(columns)
    assert sum(forwarded) == 60 + 60 + 30 + 20
    assert columns.appended_as_columns == 60 + 60 + 30 + 20 + 20
    one, other = single.registry.state(), columns.registry.state()
    assert leaves_of_state(one) == leaves_of_state(other)
    for name in one.keys() - {"leaf_sets", "leaf_set_offsets", "leaf_set_rows"}:
        np.testing.assert_array_equal(one[name], other[name], name)
    assert isinstance(columns.answers[1], Outcomes)


def test_rows_that_need_no_change_are_answered_as_single_ones() -> None:
    log = ColumnLog()
    log.request(asked("register", "old"), asked("register", "same"))
    log.read()
    token = log.request(
        asked("register", "new"), asked("register", "old", "other"), asked("register", "same")
    )
    log.read()
    assert kinds(log, token) == [2, "ALREADY_EXISTS", 1]
    token = log.request(asked("update", "old", "third"), asked("update", "none"))
    log.read()
    # Behind the probe that decided about the rest.
    assert kinds(log, token) == [4, "NOT_FOUND"]


def test_ids_with_one_handle_are_apart_in_columns() -> None:
    victim = "acme:orders"
    not_found, exists = "NOT_FOUND", "ALREADY_EXISTS"
    for action, code in (("update", not_found), ("unregister", not_found), ("register", exists)):
        log = ColumnLog()
        log.request(asked("register", victim))
        log.read()
        token = log.request(asked(action, FOUND[victim], "evil"))
        log.read()
        assert kinds(log, token) == [code]
        assert all(victim in ids for ids in log.installed_ids().values())
    # Neither is live when both are asked for in one request: the first one is registered.
    log = ColumnLog()
    token = log.request(asked("register", victim), asked("register", FOUND[victim], "evil"))
    log.read()
    assert kinds(log, token) == [0, "ALREADY_EXISTS"]
    assert all(ids == {victim: 0} for ids in log.installed_ids().values())


def test_requests_for_a_query_wait_for_its_change_in_columns() -> None:
    log = ColumnLog()
    first = log.request(*(asked("register", f"q{n}") for n in range(3)))
    again = log.request(*(asked("register", f"q{n}") for n in range(3)))
    gone = log.request(asked("unregister", "q1"))
    assert len(log.records) == 3
    log.read()
    assert kinds(log, first) == kinds(log, again) == [0, 1, 2]
    assert log.outcome(gone).error is None
    assert {name for ids in log.installed_ids().values() for name in ids} == {"q0", "q2"}


def test_a_change_of_another_owner_comes_first() -> None:
    """The column of that query is void; its request is decided again, the others are not."""
    log = ColumnLog()
    log.request(asked("register", "q1"))
    log.read()
    stranger = log.records[0]
    token = log.request(asked("update", "q1", "x"))
    own = log.records.pop()
    log.records += [
        Change(
            handle=stranger.handle,
            query=None,
            subscriber="",
            start_ms=5,
            expected_revision=0,
            digest=0,
            epoch=7,
        ),
        own,
    ]
    log.read()
    assert kinds(log, token) == ["NOT_FOUND"]


def test_a_new_owner_reads_columns_that_it_has_not_asked_for(forwarded: list[int]) -> None:
    first = ColumnLog()
    first.request(*(asked("register", f"q{n}", west=-160.0 + n) for n in range(20)))
    first.read()
    second = ColumnLog()
    second.records = first.records
    second.read()
    assert second.installed_ids() == first.installed_ids()
    assert forwarded == [20, 20]
    assert not second.answers


def test_a_deposed_owner_refuses_columns() -> None:
    log = ColumnLog()
    log.registry.validation.epoch_seen = 8
    token = log.request(asked("register", "q1"), asked("register", "q2"))
    assert kinds(log, token) == ["UNAVAILABLE"] * 2


def test_an_owner_that_loses_its_partition_answers_columns() -> None:
    log = ColumnLog()
    token = log.request(*(asked("register", f"q{n}") for n in range(4)))
    log.carry_out(log.registry.abandon())
    assert kinds(log, token) == ["UNAVAILABLE"] * 4


def test_an_unannounced_owner_appends_a_probe_alone() -> None:
    log = ColumnLog()
    log.registry.validation.epoch_seen = 0
    token = log.request(*(asked("register", f"q{n}") for n in range(4)))
    assert [change.is_probe for change in log.records] == [True]
    log.read()
    assert len(kinds(log, token)) == 4
    assert log.changes == 4


def test_a_query_asked_for_twice_is_decided_in_order() -> None:
    log = ColumnLog()
    requests = [asked("register", "q1"), asked("register", "q2")]
    columns = column_requests(requests)
    assert isinstance(columns, PlainRequests)
    twice = PlainRequests(
        is_update=False, queries=columns.queries.take(np.array([0, 1, 0])), start_ms=NOW_MS
    )
    token = log.request_columns(twice)
    log.read()
    assert kinds(log, token) == [0, 1, 0]


def test_many_changes_are_forwarded_in_parts(forwarded: list[int]) -> None:
    log = ColumnLog()
    count = PLAIN_MAX + 8
    token = log.request(*(asked("register", f"q{n}", west=-160.0 + n / 40) for n in range(count)))
    log.read()
    assert forwarded == [PLAIN_MAX, 8]
    assert kinds(log, token) == list(range(count))


def test_parts_fit_the_record_of_one_slot() -> None:
    """Also where ids and subscribers are as long as can be, and texts have nothing but terms."""
    words = " ".join(chr(97 + n % 26) for n in range(40))
    requests = [
        replace(asked("register", f"q{n:0127}", text=words), subscriber=f"s{n:0127}")
        for n in range(PLAIN_MAX)
    ]
    columns = column_requests(requests)
    assert isinstance(columns, PlainRequests)
    found = list(parts(columns.queries, LIMITS.part_bytes_max))
    assert len(found) > 1
    assert [begin for begin, _ in found] == [0, *(end for _, end in found[:-1])]
    assert found[-1][1] == PLAIN_MAX
    for begin, end in found:
        some = columns.queries.take(np.arange(begin, end))
        record = Installed.plain(
            *(0, 0, some.names, np.arange(end - begin), some.rows, None),
            *(np.empty(0, np.uint64), np.empty(0, np.int64)),
        )
        assert encode(record)[1].ByteSize() <= LIMITS.part_bytes_max


def test_a_part_has_one_query_at_least() -> None:
    columns = column_requests([asked("register", f"q{n}") for n in range(8)])
    assert isinstance(columns, PlainRequests)
    assert list(parts(columns.queries, bytes_max=1)) == [(n, n + 1) for n in range(8)]


def test_removals_that_need_no_change_are_answered_as_single_ones() -> None:
    log = ColumnLog()
    log.request(asked("register", "old"), asked("register", "older"))
    log.read()
    token = log.request(asked("unregister", "old"), asked("unregister", "none"))
    log.read()
    # Behind the removal is the probe that decided about the rest.
    assert kinds(log, token) == [2, "NOT_FOUND"]
    assert log.appended_as_columns == 3


def test_a_query_of_any_kind_is_removed_in_columns() -> None:
    log = ColumnLog()
    near = {"id": "near", "kind": "knn", "mode": "continuous", "k": 2}
    members = parse_query({**near, "point": {"lon": 0.0, "lat": 0.0}})
    log.request(replace(asked("register", "near"), query=members))
    log.request(asked("register", "plain"))
    log.read()
    log.installs.clear()
    token = log.request(asked("unregister", "near"), asked("unregister", "plain"))
    log.read()
    assert kinds(log, token) == [2, 3]
    removed = [slot for slot, message in log.installs for _ in message.removed]
    # A query of nearest objects is in every slot.
    assert len(removed) == ROUTING.slots + 1
    assert len(log.registry.live) == 0


def test_a_removal_waits_for_a_change_in_columns_and_a_change_for_a_removal() -> None:
    log = ColumnLog()
    first = log.request(*(asked("register", f"q{n}") for n in range(3)))
    gone = log.request(*(asked("unregister", f"q{n}") for n in range(3)))
    again = log.request(*(asked("register", f"q{n}", "b") for n in range(3)))
    log.read()
    assert kinds(log, first) == [0, 1, 2]
    assert all(isinstance(each, int) for each in kinds(log, gone) + kinds(log, again))
    assert log.changes == 9
    assert len(log.registry.live) == 3


def test_a_removal_of_a_version_that_another_owner_replaced_is_decided_again() -> None:
    log = ColumnLog()
    log.request(asked("register", "q1"), asked("register", "q2"))
    log.read()
    token = log.request(asked("unregister", "q1"), asked("unregister", "q2"))
    own = [log.records.pop(), log.records.pop()][::-1]
    stranger = replace(log.records[0], expected_revision=0, start_ms=5)
    log.records += [stranger, *own]
    log.read()
    # The first one was void: it is appended again, for the version that is in force.
    assert kinds(log, token) == [5, 4]
    assert len(log.registry.live) == 0


def test_removals_in_columns_fit_records_of_slots() -> None:
    log = ColumnLog()
    log.registry.limits = replace(log.registry.limits, installed_bytes_max=48)
    count = 7
    log.request(*(asked("register", f"q{n}") for n in range(count)))
    log.read()
    log.installs.clear()
    token = log.request(*(asked("unregister", f"q{n}") for n in range(count)))
    log.read()
    assert kinds(log, token) == list(range(count, 2 * count))
    assert max(len(message.removed) for _, message in log.installs) == 3
    assert len(log.registry.live) == 0


@pytest.mark.parametrize("seed", range(8))
def test_random_lives_are_the_same_either_way(seed: int) -> None:
    """Batches of all kinds, read at random: the same queries in the same slots, equal answers."""
    dice = random.Random(seed)
    single, columns = Log(), ColumnLog()
    tokens: list[tuple[int, int]] = []
    for _ in range(60):
        action = dice.choice(["register", "register", "update", "unregister"])
        names = [f"q{n}" for n in dice.sample(range(12), dice.randint(1, 6))]
        if dice.random() < 0.2:
            names.append(names[0])
        requests = [
            asked(action, name, dice.choice("ab"), dice.choice([-150.0, -60.0, 20.0, 60.0]))
            for name in names
        ]
        tokens.append((single.request(*requests), columns.request(*requests)))
        if dice.random() < 0.6:
            single.read()
            columns.read()
    single.read()
    columns.read()
    for one, other in tokens:
        pairs = zip(single.answers[one], columns.answers[other], strict=True)
        assert all(type(a.error) is type(b.error) for a, b in pairs), f"seed {seed}"
    installs = [
        {slot: set(ids) for slot, ids in log.installed_ids().items()} for log in (single, columns)
    ]
    assert installs[0] == installs[1], f"seed {seed}"
    digests = [
        dict(zip(log.registry.state()["handles"], log.registry.state()["digests"], strict=True))
        for log in (single, columns)
    ]
    assert digests[0] == digests[1]
    assert columns.appended_as_columns > 0


def test_one_turn_sends_slots_a_bounded_part_of_columns() -> None:
    log, whole = ColumnLog(limits=RouterLimits(turn_bytes_max=100_000)), ColumnLog()
    text = " ".join(f"w{number}" for number in range(20))
    requests = [asked("register", f"q{row}", text) for row in range(10_000)]
    for each in (log, whole):
        each.request(*requests)
        assert each.appended_as_columns == len(requests)
    entries = column_entries(3, list(enumerate(log.records)))
    read: list[Any] = [(entry.offset, entry.message) for entry in entries]
    turns = 0
    while turns == 0 or log.registry.is_crowded:
        effects = log.registry.read(read if turns == 0 else (), {1: ROUTING})
        assert installed_bytes(effects) < 8 << 20
        log.carry_out(effects)
        turns += 1
        assert log.registry.next_offset == len(requests)
    whole.read()
    assert turns > 3
    assert log.installed_ids() == whole.installed_ids()
    assert log.outcome_of(1) == whole.outcome_of(1)
