"""Sets bounds of records so small that every record is split, in some worlds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from unittest.mock import patch

from sirocco.protocol.evaluator import machine
from sirocco.protocol.evaluator.reports import match_records, step_records
from sirocco.protocol.evaluator.slot import slot
from sirocco.protocol.merger import delivery_records, knn_lists
from sirocco.protocol.merger import machine as merger
from sirocco.protocol.router.objects import intake_router, keyword_filter, slot_records
from sirocco.protocol.router.queries import install_records, keyword_summary, member_declarations
from sirocco.services.evaluator import slot_search, stored

# Share of the worlds.
SHARE = 0.3

BOUNDS = (
    (intake_router, "FLUSH_BYTES_MAX", 400),
    (slot_records, "SLOT_ROWS_MAX", 3),
    (slot_records, "RECORD_BYTES_MAX", 60),
    (install_records, "INSTALLED_BYTES_MAX", 500),
    (match_records, "MATCHES_MAX", 3),
    (match_records, "PIECE_BYTES_MAX", 300),
    (step_records, "PIECE_BYTES_MAX", 120),
    (slot, "STEPS_MAX", 2),
    (machine, "STEPS_TURN_MAX", 3),
    (knn_lists, "PIECE_BYTES_MAX", 500),
    (merger, "WAITING_BYTES_MAX", 600),
    (delivery_records, "PIECE_BYTES_MAX", 500),
    (slot_search, "PART_BYTES", 200),
    (slot_search, "PART_BYTES_MAX", 600),
    (slot_search, "NEAREST_ROWS", 12),
    (stored, "ROWS_FEW", 3),
    (keyword_summary, "RECORD_BYTES_MAX", 40),
    # A handful of keywords for each partition of the registry.
    (keyword_filter, "TABLE_BYTES_MAX", 400),
    (keyword_summary, "TABLE_BYTES_MAX", 400),
)

# Worlds are so small that keywords would otherwise never be republished.
OBSOLETE_MIN = 3


@contextmanager
def small_records(seed: int) -> Iterator[None]:
    """Makes records small while the context is open, for some seeds."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(keyword_summary, "OBSOLETE_MIN", OBSOLETE_MIN))
        # Two members: a member that no query tracks is forgotten at once.
        stack.enter_context(patch.object(member_declarations, "OBSOLETE_MIN", 0))
        if Random(f"records {seed}").random() < SHARE:
            for module, name, value in BOUNDS:
                stack.enter_context(patch.object(module, name, value))
        yield
