"""Two ids with one handle in the registry: the second is refused, and neither affects the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sirocco.codec.hops import key_of
from sirocco.model.errors import AlreadyExists, NotFound
from sirocco.model.query import fingerprint_of, query_handle
from sirocco.protocol.contract.messages import NO_REVISION, Change
from sirocco.protocol.router.limits import LIMITS
from sirocco.protocol.router.queries import former_identities
from sirocco.protocol.router.queries.live_queries import UNKNOWN
from sirocco.protocol.router.queries.pending_changes import is_same
from sirocco.protocol.router.queries.registry_partition import Registry
from tests.collisions import FOUND, PAIRS, ZEROS
from tests.support.registry_log import Log, query
from tests.support.values import change_of, request_of

VICTIM = "acme:orders"
EVIL = FOUND[VICTIM]
ZERO = ZEROS[0]


def registered(query_id: str, start_ms: int = 0, **more: Any) -> Any:
    return request_of("register", query(query_id, **more), start_ms=start_ms)


def refusal(log: Log, request: Any) -> Exception:
    records = len(log.records)
    outcome = log.ask(request)
    assert outcome.revision == NO_REVISION
    assert all(change.is_probe for change in log.records[records:])
    assert outcome.error is not None
    assert outcome.error.field == "id"
    assert VICTIM not in str(outcome.error)
    return outcome.error


def test_an_id_that_collides_with_a_live_one_is_refused() -> None:
    log = Log(100)
    revision = log.ask(registered(VICTIM)).revision
    error = refusal(log, registered(EVIL))
    assert isinstance(error, AlreadyExists)
    assert "choose another id" in str(error)
    assert isinstance(refusal(log, request_of("update", query(EVIL, text="evil"))), NotFound)
    assert isinstance(refusal(log, request_of("unregister", EVIL)), NotFound)
    assert log.installed_ids() == {slot: {VICTIM: revision} for slot in range(5)}
    assert log.ask(registered(VICTIM)).revision == revision


def test_one_whose_lifetime_has_ended_is_not_replaced_by_another_id() -> None:
    log = Log(100)
    revision = log.ask(registered(VICTIM, ttl="1s")).revision
    late = replace(registered(EVIL, start_ms=10**12), is_start_given=True)
    assert isinstance(refusal(log, late), AlreadyExists)
    assert log.registry.live.revision(query_handle(VICTIM)) == revision
    log.carry_out(log.registry.expire(10**12))
    log.read()
    assert log.ask(late).error is None


def test_when_one_is_removed_the_other_may_be_registered() -> None:
    log = Log(100)
    log.ask(registered(VICTIM))
    log.ask(request_of("unregister", VICTIM))
    revision = log.ask(registered(EVIL)).revision
    assert log.installed_ids() == {slot: {EVIL: revision} for slot in range(5)}
    assert isinstance(log.ask(request_of("unregister", VICTIM)).error, NotFound)


def test_of_two_that_come_together_the_first_of_the_log_is_registered() -> None:
    for first, second in ((VICTIM, EVIL), (EVIL, VICTIM)):
        log = Log(100)
        token = log.request(registered(first), registered(second))
        later = log.request(registered(second))
        log.read()
        done, void = log.answers[token]
        assert done.error is None
        assert isinstance(void.error, AlreadyExists)
        assert isinstance(log.outcome(later).error, AlreadyExists)
        # The void record has the other's key: the change in force is republished.
        assert log.registry.hidden.keys() == {query_handle(first)}
        assert log.installed_ids() == {slot: {first: done.revision} for slot in range(5)}


def test_changes_that_crowd_one_id_do_not_crowd_the_other() -> None:
    log = Log(100)
    for number in range(LIMITS.waiting_changes_max + 10):
        log.request(registered(EVIL, text=f"word{number}"))
    token = log.request(request_of("unregister", VICTIM))
    log.read()
    assert isinstance(log.outcome(token).error, NotFound)


def test_requests_for_the_other_id_do_not_keep_the_query_from_ending() -> None:
    log = Log(100)
    log.ask(registered(VICTIM, ttl="1s"))
    # They wait for a probe that the log has not shown yet.
    log.request(request_of("unregister", EVIL))
    assert query_handle(VICTIM) not in log.registry.pending_requests
    records = len(log.records)
    log.carry_out(log.registry.expire(10**12))
    assert len(log.records) == records + 1
    log.request(request_of("update", query(VICTIM)))
    assert query_handle(VICTIM) in log.registry.pending_requests
    log.read()
    assert len(log.registry.live) == 0


def test_removals_of_both_are_not_mistaken_for_each_other() -> None:
    log = Log(100)
    log.ask(registered(VICTIM))
    removals = log.request(request_of("unregister", EVIL), request_of("unregister", VICTIM))
    log.read()
    evil, victim = log.answers[removals]
    assert isinstance(evil.error, NotFound)
    assert victim.error is None


def test_a_change_of_the_other_id_is_not_taken_for_an_own_one() -> None:
    own = replace(change_of(registered(VICTIM)), digest=7)
    other = replace(change_of(registered(EVIL)), digest=7)
    assert is_same(own, replace(own, epoch=9))
    assert not is_same(other, own)


def test_an_owner_that_has_just_begun_refuses_it_too() -> None:
    log = Log(100)
    log.ask(registered(VICTIM))
    successor = Log(100)
    successor.records = list(log.records)
    successor.registry = Registry(partition=3, offset=log.head, floor=log.head, epoch=8)
    successor.registry.restore(log.registry.state())
    assert isinstance(refusal(successor, registered(EVIL)), AlreadyExists)
    assert isinstance(refusal(successor, request_of("unregister", EVIL)), NotFound)
    assert successor.ask(request_of("unregister", VICTIM)).error is None


@pytest.mark.parametrize("is_said_again", [False, True])
def test_a_checkpoint_from_before_finds_out_whose_its_queries_are(is_said_again: bool) -> None:
    log = Log(0)
    log.ask(registered(VICTIM))
    log.ask(registered(PAIRS[0][0]))
    if is_said_again:
        log.registry.repair.note_void(log.records[0])
        log.carry_out(log.registry.republish(0, log.records[0]))
        log.read()
        assert log.registry.place(query_handle(VICTIM)) > 0
    state = dict(log.registry.state())
    del state["fingerprints"]
    assert former_identities.are_missing(state)
    state = dict(former_identities.with_fingerprints(state, enumerate(log.records)))
    assert not former_identities.are_missing(state)
    successor = Log(0)
    successor.records = list(log.records)
    successor.registry = Registry(partition=3, offset=log.head, floor=log.head, epoch=8)
    successor.registry.restore(state)
    for evil in (EVIL, PAIRS[0][1]):
        assert isinstance(refusal(successor, registered(evil)), AlreadyExists)
        assert isinstance(refusal(successor, request_of("update", query(evil))), NotFound)
        assert isinstance(refusal(successor, request_of("unregister", evil)), NotFound)
    assert successor.ask(request_of("update", query(VICTIM, text="new"))).error is None


def test_one_whose_definition_was_not_found_is_known_by_its_handle() -> None:
    log = Log(0)
    log.ask(registered(VICTIM))
    state = dict(log.registry.state())
    del state["fingerprints"]
    state = dict(former_identities.with_fingerprints(state, []))
    assert state["fingerprints"].tolist() == [UNKNOWN]
    log.registry.restore(state)
    assert log.registry.live.has(query_handle(VICTIM), VICTIM)
    assert log.ask(request_of("update", query(VICTIM, text="new"))).error is None
    assert not log.registry.live.has(query_handle(VICTIM), EVIL)


def test_an_old_log_in_which_one_replaced_the_other_is_read_as_it_was() -> None:
    """Former owners compared handles only: the queries that they accepted keep their ids."""
    log = Log(0)
    log.records += [
        replace(change_of(registered(VICTIM)), epoch=7),
        replace(change_of(request_of("update", query(EVIL)), expected_revision=0), epoch=7),
    ]
    log.read()
    assert log.installed_ids() == {slot: {EVIL: 1} for slot in range(5)}
    assert isinstance(refusal(log, registered(VICTIM)), AlreadyExists)
    assert isinstance(refusal(log, request_of("unregister", VICTIM)), NotFound)
    assert log.ask(request_of("unregister", EVIL)).error is None


def test_an_id_whose_handle_is_zero_is_one_like_any_other() -> None:
    assert query_handle(ZERO) == 0
    # Its revision is that of probes, its handle theirs.
    log = Log(0)
    assert log.ask(registered(ZERO)).revision == 0
    log.records.append(log.registry.pending_requests.probe(0))
    log.read()
    assert log.installed_ids() == {slot: {ZERO: 0} for slot in range(5)}
    revision = log.ask(request_of("update", query(ZERO, text="new"))).revision
    assert log.ask(registered(ZERO, text="new")).revision == revision
    assert log.installed_ids() == {slot: {ZERO: revision} for slot in range(5)}
    assert isinstance(log.ask(registered(ZERO, text="other")).error, AlreadyExists)
    assert log.ask(request_of("unregister", ZERO)).error is None
    assert log.installed_ids() == {}
    assert len(log.registry.live) == 0


def test_records_of_an_id_whose_handle_is_zero_have_its_key() -> None:
    change = change_of(registered(ZERO))
    removal = Change(
        handle=0, query=None, subscriber="", start_ms=5, expected_revision=3, digest=0, epoch=9
    )
    assert key_of(change) == key_of(removal) == bytes(8)
    assert (
        key_of(
            Change(
                handle=0,
                query=None,
                subscriber="",
                start_ms=5,
                expected_revision=0,
                digest=1,
                epoch=9,
            )
        )
        == b"probe/9"
    )


def test_fingerprints_distinguish_what_handles_do_not() -> None:
    for one, other in [*FOUND.items(), *PAIRS]:
        assert query_handle(one) == query_handle(other)
        assert fingerprint_of(one) != fingerprint_of(other)
    assert fingerprint_of(ZERO) != UNKNOWN
