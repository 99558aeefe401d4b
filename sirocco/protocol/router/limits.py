"""The limits and intervals of a router."""

from __future__ import annotations

from dataclasses import dataclass

from sirocco.protocol.contract.positions import SLOT_ROWS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterLimits:
    """How much a router keeps and sends at once, and how often.

    Attributes:
        checkpoint_interval_ms: between checkpoints of a Kafka partition that has advanced: a
            successor repeats this much. At 100,000 objects/s it routes these in under 4 s, well
            before the intake's back-pressure.
        mark_interval_ms: between marks. The time of a slot, and so expiry and take-overs, lags by
            as much.
        flush_objects: a flush is due at this many objects: one record a slot of some hundred
            objects, a few milliseconds of work. Larger flushes gain nothing (8,192 objects: 512 a
            record at 16 slots) and delay the next poll.
        flush_bytes_max: bytes that one turn makes of objects, copies included, estimated before
            anything is made; one intake record is always taken. An object of 16 KB that members in
            all of 64 slots follow takes 1 MB, so 8,192 of them would fill any memory.
        records_per_s_max: records, not objects, are expensive: about 1 ms of CPU each while they
            are small, shares of broker and evaluator included. A router makes about this many a
            second at most: with 16 slots a flush every 64 ms.
        flush_interval_ms_min: least time between flushes; after a pause the first objects are sent
            at once.
        flush_interval_ms_max: greatest time between flushes.
        slot_rows_max: objects in one record for a slot; positions have no room for more.
        slot_bytes_max: bytes of texts, attributes, string ids and terms in one record for a slot.
            With the numeric columns, a record of short objects stays below half of what the log
            accepts.
        sessions_max: publishing sessions that one intake partition remembers. At 28 bytes each, 28
            MB; more open publishers than one Kafka partition can carry.
        expiry_interval_ms: lifetimes end in the index without this; removing the query only frees
            memory.
        expiry_grace_ms: the wait covers objects that arrived within the lifetime and are still in
            transit: longer than a take-over (10 s) plus the difference of clocks. Removed at once,
            the query would miss them. A router also waits this long after it starts or was
            suspended: perhaps all routers were, with objects left in `intake`.
        installed_bytes_max: bytes of a record of queries for a slot, except for one query that is
            larger: 256 conjunctions of 1,000 terms are 2 MB. Each query of a record is validated by
            its own revision, so it does not matter which share one.
        part_bytes_max: bytes of the record of a slot that holds all changes of queries that are
            forwarded together: half of what a log accepts.
        turn_bytes_max: bytes of records for slots that one turn makes of the changes of a registry
            partition, about: a query of 2 KB may take 100 KB in each slot that it meets, and 512 of
            them are polled together. What is left waits while objects are routed.
        expired_max: queries of one registry partition that are removed at once because their
            lifetimes ended, the next ones when the log has shown these: clients choose how many end
            together. A few milliseconds.
        waiting_changes_max: changes that may wait for an append of the same query. More are
            refused: a client that floods a single query must not exhaust memory.
        alternatives_max: a query whose versions have had more conjunctions than this begins anew.
            Only an object in transit at that moment may be reported twice, or not at all.
        removed_locators_max: removed queries whose locators are remembered: an object in transit
            that met the query also meets one registered again under its id. About 200 bytes each.
        members_max: members that the queries of one registry partition track at most: clients
            choose them, 256 bytes each. The full list fits one record of 1 MiB; a cluster has a
            handful. No tenant gets more than stay free: the first one gets half of them at most,
            the next one half of the rest.
        obsolete_members_min: this many members, and half as many as are tracked, must have gone
            before the full list is published: at most a third of the known ones are obsolete, and
            each change costs a bounded part of a record.
        clocks_differ_ms: after a change of the map, queries that ask for arrivals before it are in
            every slot, since the former map placed such objects. So are those that began within
            this time after it: it is longer than the clocks of routers differ.
        summary_interval_ms: between parts of the summary of what live queries need. Each part is
            one record for every intake partition. A million keywords of one registry partition are
            published within ten seconds.
        keyword_table_bytes_max: memory of the table of one intake partition; each keyword beyond it
            opens its slots to every object. At 64 slots a million keywords: more than the
            vocabulary of a month of posts, and a router that owns eight intake partitions stays
            below its memory.
        keyword_record_bytes_max: bytes of one record of keywords: 10,000 keywords at 64 slots. A
            piece is sent to every intake partition a few times a second, so that a million keywords
            do not delay the routing.
        obsolete_queries_min: this many queries, and half as many as are live, must be gone before
            all keywords are republished: each change then costs a bounded number of keywords, and
            at most a third of keywords are obsolete.
    """

    checkpoint_interval_ms: int = 10_000
    mark_interval_ms: int = 1_000
    flush_objects: int = 8_192
    flush_bytes_max: int = 64 << 20
    records_per_s_max: int = 250
    flush_interval_ms_min: int = 10
    flush_interval_ms_max: int = 64
    slot_rows_max: int = SLOT_ROWS_MAX
    slot_bytes_max: int = 1 << 20
    sessions_max: int = 1_000_000
    expiry_interval_ms: int = 5_000
    expiry_grace_ms: int = 60_000
    installed_bytes_max: int = 1 << 20
    part_bytes_max: int = 2 << 20
    turn_bytes_max: int = 32 << 20
    expired_max: int = 10_000
    waiting_changes_max: int = 1_000
    alternatives_max: int = 256
    removed_locators_max: int = 50_000
    members_max: int = 4_096
    obsolete_members_min: int = 64
    clocks_differ_ms: int = 60_000
    summary_interval_ms: int = 100
    keyword_table_bytes_max: int = 32 << 20
    keyword_record_bytes_max: int = 160_000
    obsolete_queries_min: int = 1_000


LIMITS = RouterLimits()
