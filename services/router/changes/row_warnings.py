"""Warnings about the queries of a bulk request, as one response holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sirocco_api.v1 import query_service_pb2 as pb

# Rows with warnings that one response names, some 100 KB: who makes the same mistake in all
# queries of a file learns no more from the ten-thousandth.
WARNED_ROWS_MAX = 1_000

LEFT_OFF = "further rows of this request may have warnings too"


def row_warnings(warnings: Mapping[int, Sequence[str]]) -> list[pb.RowWarnings]:
    """Returns the messages of the first rows; the last one says if others are left off."""
    rows = sorted(warnings)
    messages = [pb.RowWarnings(row=row, warnings=warnings[row]) for row in rows[:WARNED_ROWS_MAX]]
    if len(rows) >= WARNED_ROWS_MAX:
        messages[-1].warnings.append(LEFT_OFF)
    return messages
