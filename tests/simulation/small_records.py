"""Sets bounds of records so small that every record is split, in some worlds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from random import Random
from unittest.mock import patch

from sirocco.protocol.contract.record_sizes import RecordLimits
from sirocco.protocol.evaluator.limits import EvaluatorLimits
from sirocco.protocol.merger.limits import MergerLimits
from sirocco.protocol.router.limits import RouterLimits
from sirocco.runtime.limits import ProcessLimits
from sirocco.services.evaluator import slot_search, stored

# Share of the worlds.
SHARE = 0.3

BOUNDS = (
    (slot_search, "PART_BYTES", 200),
    (slot_search, "PART_BYTES_MAX", 600),
    (slot_search, "NEAREST_ROWS", 12),
    (stored, "ROWS_FEW", 3),
)

# Worlds are so small that keywords would otherwise never be republished. Of two members one that
# no query tracks is forgotten at once.
LIMITS = ProcessLimits(router=RouterLimits(obsolete_queries_min=3, obsolete_members_min=0))

SMALL = ProcessLimits(
    router=replace(
        LIMITS.router,
        flush_bytes_max=400,
        slot_rows_max=3,
        slot_bytes_max=60,
        installed_bytes_max=500,
        keyword_record_bytes_max=40,
        # A handful of keywords for each partition of the registry.
        keyword_table_bytes_max=400,
    ),
    evaluator=EvaluatorLimits(
        turn_steps_max=3,
        report_steps_max=2,
        records=RecordLimits(matches_max=3, bytes_max=120),
    ),
    merger=MergerLimits(waiting_bytes_max=600, records=RecordLimits(bytes_max=500)),
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


@contextmanager
def small_records(seed: int) -> Iterator[None]:
    """Makes records small while the context is open, for some seeds."""
    with ExitStack() as stack:
        if has_small_records(seed):
            for module, name, value in BOUNDS:
                stack.enter_context(patch.object(module, name, value))
        yield
