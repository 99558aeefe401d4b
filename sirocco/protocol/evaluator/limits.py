"""The limits and intervals of an evaluator."""

from __future__ import annotations

from dataclasses import dataclass

from sirocco.index.standing.limits import LIMITS as STANDING_LIMITS
from sirocco.index.standing.limits import StandingLimits
from sirocco.protocol.contract.record_sizes import RECORD_LIMITS, RecordLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorLimits:
    """How much an evaluator does at once, and how often.

    Attributes:
        mark_interval_ms: marks are passed on to the mergers as they arrive from the routers, once a
            second from each; with many routers not more often than this.
        checkpoint_interval_ms: a successor matches this much again; the first time perhaps twice as
            much. A checkpoint is the slot's query rows, some 100 bytes each, and writes the objects
            since the last one to the archive. Those of a process are spread over the interval: all
            at once would take a core for seconds.
        checkpoint_spacing_ms: least time between checkpoints of two slots of a process: exporting
            100,000 queries takes 20 ms, in which nothing is matched.
        checkpoint_changes: query changes after which a checkpoint is due in any case: loading them
            from the checkpoint is ten times faster than from the log.
        tidy_interval_ms: between checks for objects that are too old, or too many, to stay in
            memory.
        turn_steps_max: about how many steps one turn takes, where a search counts by the objects
            of its slot: some 100,000 in all. A process whose turn takes many seconds counts as
            dead, and its successors would begin the same steps again.
        report_steps_max: steps of one report. The grouping of steps into reports determines their
            positions, and so is the same in all evaluators; a report may take several turns.
        gap_ms: how far the newest object is after a step for a gap to be looked for. Sorting the
            arrivals of up to a million objects takes as long as some searches; while objects keep
            coming no step is empty.
        waiting_objects_max: objects whose leaves are found together, some 200 bytes each.
        recent_objects_max: objects of a round of counts that are kept: some 3 MB with their terms.
            A leaf with a hundredth of the load still has a hundred of them to find a split by.
        sampled_queries_max: standing queries of a slot that are sampled when a round ends:
            exporting them takes a millisecond of the loop, and the number in a leaf is known to a
            few per cent.
        records: how much one record to the mergers holds.
        standing: of the indexes of standing queries.
    """

    mark_interval_ms: int = 200
    checkpoint_interval_ms: int = 15_000
    checkpoint_spacing_ms: int = 100
    checkpoint_changes: int = 200_000
    tidy_interval_ms: int = 1_000
    turn_steps_max: int = 1_024
    report_steps_max: int = 512
    gap_ms: int = 10_000
    waiting_objects_max: int = 1 << 12
    recent_objects_max: int = 1 << 14
    sampled_queries_max: int = 1 << 10
    records: RecordLimits = RECORD_LIMITS
    standing: StandingLimits = STANDING_LIMITS


LIMITS = EvaluatorLimits()
