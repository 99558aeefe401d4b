"""Planted bugs in the ends of queries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from sirocco.protocol.contract.effects import Effect
from sirocco.protocol.contract.messages import Change, Installed, Message
from sirocco.protocol.contract.query_specs import Spec
from sirocco.protocol.contract.record_sizes import RecordLimits
from sirocco.protocol.evaluator.standing.query_ends import QueryEndings
from sirocco.protocol.merger.machine import Window
from sirocco.protocol.merger.query_ends import QueryEnds
from sirocco.protocol.router.queries.end_requests import End, EndRequests
from sirocco.protocol.router.queries.install_records import Installs
from sirocco.protocol.router.queries.query_placement import Routings
from sirocco.protocol.router.queries.registry_partition import Registry
from sirocco.protocol.router.queries.slot_updates import SlotUpdates
from tests.simulation.plants import Plant

_learn = EndRequests.learn
_hear = QueryEnds.take_report
_ends = Installs.ends
_said = QueryEndings.registry_ends
_take_messages = Window.take_messages
_read = Registry._read
_send_ends = SlotUpdates.send_ends


def _learn_of_any(self: EndRequests, revision: int, change: Change) -> End | None:
    known = self._known.get(change.handle)
    if known is not None:
        change = replace(change, expected_revision=known.revision)
    return _learn(self, revision, change)


def _take_report_of_one(
    self: QueryEnds, spec: Spec, query: str, subscriber: str, slot: int, slots: int
) -> None:
    _hear(self, spec, query, subscriber, slot, 1)


def _republish_ends(self: QueryEndings, message: Installed, floor: int) -> Any:
    self._reported.clear()
    return _said(self, message, 0)


def _read_without_skipped(
    self: Registry, changes: list[tuple[int, Change]], routings: Routings
) -> list[Effect]:
    skipped = {offset for offset, _ in changes}

    def send_ends(updates: SlotUpdates, ends: list[End], installs: Installs) -> list[Effect]:
        return _send_ends(updates, [e for e in ends if e.revision not in skipped], installs)

    with patch.object(SlotUpdates, "send_ends", send_ends):
        return _read(self, changes, routings)


def _ends_first(self: Window, limits: RecordLimits) -> list[Message]:
    messages = _take_messages(self, limits)
    return messages[::-1]


def _nothing(self: Any, *args: Any) -> None:
    return None


END_PLANTS = (
    Plant(
        "a query has ended when one slot reports it",
        "calm",
        ((QueryEnds, "take_report", _take_report_of_one),),
    ),
    Plant(
        "a router forgets at a take-over whose end is to be reported",
        "kill-router",
        ((EndRequests, "restore", _nothing),),
    ),
    Plant(
        "an owner reports the end of the version that it knows instead of the ended one",
        "gaps",
        ((EndRequests, "learn", _learn_of_any),),
    ),
    Plant(
        "an owner does not report the end of a version that it reads with its successor",
        "outage",
        ((Registry, "_read", _read_without_skipped),),
    ),
    Plant(
        "a merger forgets at a take-over which slots have reported an end",
        "kill-merger",
        ((QueryEnds, "restore", _nothing),),
        # One of a thousand worlds meets it.
        first_seed=400,
    ),
    Plant(
        "a slot forgets at a take-over which ends it has to report",
        "kill-evaluator",
        ((QueryEndings, "restore", _nothing),),
    ),
    Plant(
        "a query that is no longer in a slot still expires there",
        "changing",
        ((QueryEndings, "leave", _nothing),),
    ),
    Plant(
        "only the slots of a query get the record of its end",
        "calm",
        ((Installs, "ends", lambda self, ends, slots: _ends(self, ends, slots[:1])),),
    ),
    Plant("the end is sent before the matches", "calm", ((Window, "take_messages", _ends_first),)),
    Plant(
        "a slot reports an end again when the registry repeats it",
        "storm",
        ((QueryEndings, "registry_ends", _republish_ends),),
    ),
)
