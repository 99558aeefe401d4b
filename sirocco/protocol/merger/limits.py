"""The limits and intervals of a merger."""

from __future__ import annotations

from dataclasses import dataclass

from sirocco.protocol.contract.record_sizes import RECORD_LIMITS, RecordLimits

# Bytes that each Kafka partition of `deliveries` keeps for slow subscribers. Operators set this and
# the next one (`runtime.settings`).
RETAINED_BYTES_MAX = 1 << 30

# Bytes of pending steps of one Kafka partition. Enough for steps of 100,000 terms with their texts
# for an hour at one a minute, or for an evaluator's restart (seconds) with thousands of queries.
STEP_BYTES_MAX = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MergerLimits:
    """How much a merger keeps and sends at once, and how often.

    Attributes:
        window_ms: a transaction costs 0.5 ms here and 2 ms at the broker, whatever it holds: at
            most 33 a second and Kafka partition, 8 % of a core. Shorter than the time between two
            flushes of a router under load, so that matches of a flush seldom wait for the window
            before. After a pause the first matches are sent at once.
        window_matches_max: a window with so many matches is written at once: a record of about
            100,000 matches would exceed the size limit of the log.
        turn_weight_max: about how many steps of queries one turn takes or completes, some 0.1 ms
            each, as much as 32 candidates of knn queries. A window waits for all steps that its
            last record completes, and other Kafka partitions have their turns meanwhile.
        merged_entries_max: entries of knn lists that are sorted at once: some 25 ms, and 20 MB
            beside the lists. Where four times as many wait, it takes several turns.
        saved_rows_max: rows of a checkpoint (queries, steps, 16 entries of knn lists) that are made
            at once, 3 to 10 µs each: 100,000 at once would be up to a second.
        saved_bytes_max: bytes of a checkpoint that are copied at once, some milliseconds.
        waiting_bytes_max: bytes that may wait in memory to be taken or sent, for each Kafka
            partition: some windows under full load. The rest stays in the log while `deliveries` or
            its transactions are unavailable, or while the first lists wait for an unavailable
            archive.
        progress_interval_ms: with nothing but marks the progress is written at this interval:
            a caller may wait for it, and a successor need not read a whole idle hour again.
        checkpoint_interval_ms: limits what a successor reads again. A checkpoint takes 40 bytes an
            entry of all lists: 40 MB for 100,000 lists of ten entries, which a disk takes in half a
            second.
        quiet_checkpoint_interval_ms: the same interval while nothing changes that a checkpoint
            would hold and only `partials` grows.
        forget_interval_ms: between checks which versions of queries can be forgotten. A check that
            finds a new checkpoint of the registry asks the log for the ends of all slots, half a
            millisecond each.
        ended_versions_max: ends of versions that one Kafka partition of `partials` remembers, some
            260 bytes each. These are the ends since the last checkpoint of the registry that all
            slots have passed: usually ten seconds' worth, more while the archive is full or a slot
            makes no progress.
        ends_bytes_max: bytes of ends of queries that wait for slots, and as many of those that wait
            for other results, in one Kafka partition of `partials`: some 300,000 ends, more than
            end together. Beyond that the first are sent without the missing slots.
        terms_parts_max: parts of a terms step that are kept apart. Adding up one by one would go
            over all terms each time; never adding up would keep the terms of every slot.
        free_entries_max: so many entries of knn lists may be free before the arrays are compacted.
        records: how much one record to the subscribers holds.
    """

    window_ms: int = 30
    window_matches_max: int = 50_000
    turn_weight_max: int = 512
    merged_entries_max: int = 1 << 16
    saved_rows_max: int = 1 << 11
    saved_bytes_max: int = 8 << 20
    waiting_bytes_max: int = 32 << 20
    progress_interval_ms: int = 200
    checkpoint_interval_ms: int = 10_000
    quiet_checkpoint_interval_ms: int = 60_000
    forget_interval_ms: int = 5_000
    ended_versions_max: int = 1 << 18
    ends_bytes_max: int = 128 << 20
    terms_parts_max: int = 8
    free_entries_max: int = 4_096
    records: RecordLimits = RECORD_LIMITS


LIMITS = MergerLimits()
