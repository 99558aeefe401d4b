"""Adds what a text holds of patterns, each once a text."""

from __future__ import annotations

from typing import Any

import numpy as np

from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.text.pattern_places import holds_number
from sirocco.kernels.text.pattern_tree import END_NUMBER, END_TEXT, above

__all__ = ["add_found"]


@kernel(inline=True)
def add_found(
    end: Any, text: Any, nodes: Any, ends: Any, changes: Any, cells: Any, blocks: Any, found: Any,
    count: Any,
) -> Any:  # fmt: skip
    """Adds the patterns of an end and of those above it that the text has not shown yet.

    Args:
        cells: u8, of the text, whose patterns are wanted; none: all are.
        blocks: u8, see `pattern_places`.

    Returns:
        The new count; -1 where `found` is too short.
    """
    while end != 0 and ends[end, END_TEXT] != text:
        if count == found.shape[0]:
            return np.int64(-1)
        ends[end, END_TEXT] = text
        found[count] = ends[end, END_NUMBER]
        is_wanted = cells.shape[0] == 0
        for k in range(cells.shape[0]):
            is_wanted |= holds_number(cells[k], found[count], blocks)
        count += np.int64(is_wanted)
        end = above(end, nodes, ends, changes)
    return count
