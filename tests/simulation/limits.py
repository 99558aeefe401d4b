"""The limits of a world; in some, records are so small that every one is split."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from sirocco.protocol.contract.record_sizes import RecordLimits
from sirocco.protocol.evaluator.limits import EvaluatorLimits
from sirocco.protocol.merger.limits import MergerLimits
from sirocco.protocol.router.limits import RouterLimits
from sirocco.protocol.search.limits import SearchLimits
from sirocco.runtime.limits import ProcessLimits

# Share of the worlds.
SHARE = 0.3

LIMITS = ProcessLimits(
    router=RouterLimits(
        # Worlds are so small that keywords would otherwise never be republished. Of two members one
        # that no query tracks is forgotten at once.
        obsolete_queries_min=3,
        obsolete_members_min=0,
        # More than the difference of any two clocks, so that some queries outlive the wait.
        clocks_differ_ms=8_000,
    )
)

SMALL = ProcessLimits(
    router=replace(
        LIMITS.router,
        flush_bytes_max=400,
        slot_rows_max=3,
        slot_bytes_max=60,
        installed_bytes_max=500,
        # A turn takes one change of a query, and one lifetime that ends.
        part_bytes_max=200,
        turn_bytes_max=100,
        expired_max=1,
        keyword_record_bytes_max=40,
        # A handful of keywords for each partition of the registry.
        keyword_table_bytes_max=400,
    ),
    evaluator=EvaluatorLimits(
        turn_steps_max=3,
        report_steps_max=2,
        gap_ms=1_000,
        records=RecordLimits(matches_max=3, bytes_max=120),
    ),
    # A turn takes one record, or completes one step; each list is merged by itself.
    merger=MergerLimits(
        turn_weight_max=1,
        merged_entries_max=2,
        # Of a checkpoint one row at a time.
        saved_rows_max=1,
        saved_bytes_max=16,
        waiting_bytes_max=600,
        records=RecordLimits(bytes_max=500),
    ),
    search=SearchLimits(
        part_bytes=200, nearest_rows=12, unmeasured_rows=3, listed_factor=1, listed_min=1
    ),
)


def has_small_records(seed: int) -> bool:
    """Whether every record is split in the world of a seed."""
    return Random(f"records {seed}").random() < SHARE


def limits_of(seed: int, checkpoints_ms: int) -> ProcessLimits:
    """Returns the limits of a world.

    Args:
        seed: of the world.
        checkpoints_ms: interval of checkpoints; 0: the default.
    """
    limits = SMALL if has_small_records(seed) else LIMITS
    # With the wall clock a seed would not repeat: threads of searches yield at every opportunity,
    # or never.
    slice_s = Random(f"slices {seed}").choice([-1.0, 1e9])
    limits = replace(limits, search=replace(limits.search, slice_s=slice_s))
    if not checkpoints_ms:
        return limits
    return replace(
        limits,
        router=replace(limits.router, checkpoint_interval_ms=checkpoints_ms),
        evaluator=replace(limits.evaluator, checkpoint_interval_ms=checkpoints_ms),
        merger=replace(
            limits.merger,
            checkpoint_interval_ms=checkpoints_ms,
            quiet_checkpoint_interval_ms=checkpoints_ms,
        ),
    )
