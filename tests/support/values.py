"""Builds small, readable input values for the state machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sirocco.index.base.compile import compile_queries
from sirocco.model.limits import STORED_LIMITS
from sirocco.model.objects import ObjectColumns, ObjectColumnsBuilder, parse_object
from sirocco.model.query import parse_query, query_handle
from sirocco.model.text import TermColumns, analyse_batch
from sirocco.protocol.contract.columns import EventColumns
from sirocco.protocol.contract.control_records import MapActivated
from sirocco.protocol.contract.effects import ChangeRequest
from sirocco.protocol.contract.messages import (
    NO_PAST,
    NO_REVISION,
    Change,
    Installed,
    IntakeObjects,
    Routed,
)
from sirocco.protocol.contract.positions import Intervals, position_of
from sirocco.protocol.router.queries.install_records import Installs
from sirocco.protocol.router.queries.pending_changes import digest_of
from sirocco.schemes.builders.uniform_grid import UniformGrid
from sirocco.schemes.map.map import PartitionMap
from sirocco.schemes.map.map_bytes import to_bytes
from sirocco.schemes.map.routing import RoutingArrays
from sirocco.schemes.workload.sample import Sample, no_queries

WORDS = ["coffee", "free", "pizza", "fire", "drill", "light", "東京", "Straße"]
STATUSES = ["open", "closed"]


def columns_of(members: Sequence[dict[str, Any]]) -> ObjectColumns:
    """Returns objects as columns, from their JSON members."""
    builder = ObjectColumnsBuilder()
    for one in members:
        builder.add(parse_object(one))
    return builder.build()


def random_members(rng: np.random.Generator, number: int, *, ts: bool = True) -> dict[str, Any]:
    """Returns one object on a coarse grid of places, so that it often matches."""
    members: dict[str, Any] = {
        "id": number,
        "lon": float(rng.integers(-18, 19) * 10),
        "lat": float(rng.integers(-9, 10) * 10),
        "text": " ".join(rng.choice(WORDS, int(rng.integers(0, 5)))),
    }
    if ts and rng.random() < 0.7:
        members["ts"] = int(rng.integers(0, 100_000))
    if rng.random() < 0.4:
        members["status"] = str(rng.choice(STATUSES))
    return members


def taken_of(
    session: int,
    first_number: int,
    members: Sequence[dict[str, Any] | None],
    *,
    acknowledged_to: int = 0,
    received_ms: int = 1_000,
) -> IntakeObjects:
    """Returns an intake record; None stands for a number that the front rejected."""
    kept = [i for i, one in enumerate(members) if one is not None]
    deltas = None if len(kept) == len(members) else np.array(kept, np.uint32)
    return IntakeObjects(
        session=session,
        first_number=first_number,
        span=len(members),
        acknowledged_to=acknowledged_to,
        received_ms=received_ms,
        objects=columns_of([one for one in members if one is not None]),
        number_deltas=deltas,
    )


def random_query_members(rng: np.random.Generator, query_id: str) -> dict[str, Any]:
    """Returns a standing range query that some of `random_members` satisfy."""
    members: dict[str, Any] = {"id": query_id, "kind": "range", "mode": "continuous"}
    if rng.random() < 0.8:
        west, south = float(rng.integers(-18, 15) * 10), float(rng.integers(-9, 6) * 10)
        width, height = float(rng.integers(0, 20) * 10), float(rng.integers(0, 10) * 10)
        east = west + width if west + width <= 180 else west + width - 360
        north = min(90.0, south + height)
        rect = {"west": west, "south": south, "east": east, "north": north}
        members["region"] = {"rect": rect}
        if rng.random() < 0.3:
            members["region"] = {"circle": {"lon": west, "lat": south, "radius_m": 3e6}}
    if rng.random() < 0.8:
        members["text"] = str(
            rng.choice(
                [
                    "coffee",
                    "ANY(pizza light)",
                    "fire AND NOT drill",
                    "東京",
                    "free coffee",
                    "京",
                    '"fire drill"',
                    'coffee NOT "free coffee"',
                    'ANY("pizza light" coff*)',
                ]
            )
        )
    if rng.random() < 0.3:
        members["where"] = {"status": str(rng.choice(STATUSES))}
    if rng.random() < 0.3:
        members["ttl"] = f"{int(rng.integers(1, 60))}s"
    return members


def request_of(
    action: str,
    members: dict[str, Any] | str,
    subscriber: str = "s",
    start_ms: int = 0,
    past_ms: int = NO_PAST,
    *,
    is_start_given: bool = False,
) -> ChangeRequest:
    """Returns a client's change request; an id alone for a removal."""
    if isinstance(members, str):
        return ChangeRequest(
            action=action, id=members, query=None, subscriber="", start_ms=start_ms
        )
    # A log may hold anything, also queries accepted under the limits of an earlier version.
    query = parse_query(members, limits=STORED_LIMITS)
    return ChangeRequest(
        action=action,
        id=query.id,
        query=query,
        subscriber=subscriber,
        start_ms=start_ms,
        past_ms=past_ms,
        is_start_given=is_start_given,
    )


def change_of(request: ChangeRequest, expected_revision: int = NO_REVISION) -> Change:
    """Returns the registry record of a change request."""
    return Change(
        handle=query_handle(request.id),
        query=request.query,
        subscriber=request.subscriber,
        start_ms=request.start_ms,
        expected_revision=expected_revision,
        digest=digest_of(request),
        past_ms=request.past_ms,
        is_start_given=request.is_start_given,
    )


def uniform_map(slots: int, leaves: int, version: int = 1) -> PartitionMap:
    """Returns a map of equal tiles over the slots."""
    nothing = np.empty(0, np.uint64)
    sample = Sample(np.empty(0), np.empty(0), np.zeros(1, np.int64), nothing, nothing, no_queries())
    return UniformGrid().build(sample, leaves, slots).with_version(version)


def map_activated(term: int, version: int = 1, *, slots: int = 4) -> MapActivated:
    """Returns the declaration of a map of equal tiles."""
    return MapActivated(term, version, to_bytes(uniform_map(slots, slots, version)))


def uniform_routing(slots: int, leaves: int) -> RoutingArrays:
    """Returns the routing arrays of equal tiles over the slots."""
    return UniformGrid().compile(uniform_map(slots, leaves))


def routed_of(
    source: int,
    offset: int,
    members: Sequence[dict[str, Any]],
    arrivals_ms: Sequence[int],
    *,
    begin: int | None = None,
    time_ms: int | None = None,
    session: int = 7,
) -> Routed:
    """Returns a slot record that covers one whole record of an intake partition."""
    objects = columns_of(members)
    count = len(members)
    time_ms = arrivals_ms[-1] if time_ms is None else time_ms
    begin = position_of(offset) if begin is None else begin
    return Routed(
        map_version=1,
        intervals=Intervals.of([(source, begin, position_of(offset + 1), time_ms)]),
        objects=objects,
        events=EventColumns(
            np.full(count, session, np.uint64),
            objects.ids.copy(),
            np.array(arrivals_ms, np.int64),
        ),
        positions=np.arange(count) + position_of(offset),
        interval_rows=np.zeros(count, np.uint32),
        terms=terms_of(objects),
    )


def terms_of(objects: ObjectColumns) -> TermColumns:
    """Returns the terms of some objects."""
    return analyse_batch(objects.text, objects.text_offsets)


def installed_of(
    partition: int,
    changes: Sequence[tuple[int, dict[str, Any], str, int]],
    removed: Sequence[tuple[str, int]] = (),
    floor: int = 0,
    *,
    slots: tuple[int, ...] = (0,),
    slot: int = 0,
    past_ms: int = NO_PAST,
    is_start_given: bool = False,
) -> Installed:
    """Returns a slot record of query changes.

    Args:
        partition: of the registry.
        changes: (revision, members, subscriber, start_ms) of each new version.
        removed: (query id, revision) of each removal.
        floor: see `Installed`.
        slots: all slots of the queries.
        slot: the slot that receives the record.
        past_ms: how much history each query asks for.
        is_start_given: see `Change`.
    """
    kept = [
        (
            revision,
            change_of(
                request_of(
                    "register",
                    members,
                    subscriber,
                    start_ms,
                    past_ms,
                    is_start_given=is_start_given,
                )
            ),
        )
        for revision, members, subscriber, start_ms in changes
    ]
    installs = Installs(partition, floor)
    queries = [change.query for _, change in kept if change.query is not None]
    rows = compile_queries(queries, [start_ms for _, _, _, start_ms in changes])
    installs.install(kept, rows, [slots] * len(kept))
    for query_id, revision in removed:
        installs.remove((slot,), change_of(request_of("unregister", query_id)), revision)
    return installs.installed(slot)
