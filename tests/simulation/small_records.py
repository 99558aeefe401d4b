"""Bounds of records so small that everything is cut, in some worlds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from unittest.mock import patch

from services.evaluator import answering, stored
from sirocco.protocol import (
    deliveries,
    evaluator,
    found,
    installs,
    intake,
    knn_lists,
    merger,
    slot,
    slot_records,
    step_found,
    summaries,
    summarising,
    tracking,
)

# Share of the worlds.
SHARE = 0.3

BOUNDS = (
    (intake, "FLUSH_BYTES_MAX", 400),
    (slot_records, "SLOT_ROWS_MAX", 3),
    (slot_records, "RECORD_BYTES_MAX", 60),
    (installs, "INSTALLED_BYTES_MAX", 500),
    (found, "MATCHES_MAX", 3),
    (found, "PIECE_BYTES_MAX", 300),
    (step_found, "PIECE_BYTES_MAX", 120),
    (slot, "STEPS_MAX", 2),
    (evaluator, "STEPS_TURN_MAX", 3),
    (knn_lists, "PIECE_BYTES_MAX", 500),
    (merger, "WAITING_BYTES_MAX", 600),
    (deliveries, "PIECE_BYTES_MAX", 500),
    (answering, "PART_BYTES", 200),
    (answering, "PART_BYTES_MAX", 600),
    (answering, "NEAREST_ROWS", 12),
    (stored, "ROWS_FEW", 3),
    (summarising, "RECORD_BYTES_MAX", 40),
    # A handful of keywords for each partition of the registry.
    (summaries, "TABLE_BYTES_MAX", 400),
    (summarising, "TABLE_BYTES_MAX", 400),
)

# Worlds are so small that otherwise keywords would never be said anew.
GONE_MIN = 3


@contextmanager
def small_records(seed: int) -> Iterator[None]:
    """While it is open records are small, if the seed says so."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(summarising, "GONE_MIN", GONE_MIN))
        # Two members: what nobody tracks is forgotten at once.
        stack.enter_context(patch.object(tracking, "GONE_MIN", 0))
        if Random(f"records {seed}").random() < SHARE:
            for module, name, value in BOUNDS:
                stack.enter_context(patch.object(module, name, value))
        yield
