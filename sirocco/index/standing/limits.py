"""The limits of the indexes of standing queries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingLimits:
    """How much a slot's indexes do at once, and when they compact.

    Attributes:
        ids_garbage_bytes_min: the ids of queries are compacted when more than half of their bytes,
            and at least this many, are garbage.
        knn_repacked_min: units of postings that a table of nearest-neighbour queries has before it
            is compacted: 2 MB. Moving less is not worthwhile.
        knn_due_min: fewer rows that wait to be posted again stay until the next batch: each posting
            run has a fixed cost.
        knn_due_max: rows that may wait to be posted again, a few milliseconds of work: meanwhile,
            their postings are tested by more objects than necessary.
        knn_scanned_max: postings tested while rows wait: as much work as posting a few thousand
            rows.
        knn_undecided_max: pairs that wait for the caller: this many decisions use the earlier
            bounds.
        track_garbage_min: entries of ended queries that may stay in the sets of silent values: for
            fewer, a sweep through all sets is not worthwhile.
        track_objects_garbage_min: newest objects that may be unreferenced: for fewer, a check is
            not worthwhile.
        tracked_bytes_max: what the values inside tracked queries of one slot may take: for each its
            newest object, and an entry for each query. A query gets no more than is free, so alone
            half of it: 65,000 values with objects of 100 characters. A client chooses how many
            values there are, and 16 slots, as many as clusters have by default, fit the memory of
            two evaluators. Part of what a slot does with its log: it must be the same in every
            evaluator.
    """

    ids_garbage_bytes_min: int = 1 << 16
    knn_repacked_min: int = 1 << 16
    knn_due_min: int = 256
    knn_due_max: int = 8_192
    knn_scanned_max: int = 1 << 20
    knn_undecided_max: int = 4_096
    track_garbage_min: int = 4_096
    track_objects_garbage_min: int = 1_024
    tracked_bytes_max: int = 64 << 20


LIMITS = StandingLimits()
