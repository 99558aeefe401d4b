"""Checkpoints of mergers in tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from sirocco.protocol.contract.effects import State
from sirocco.protocol.merger.live_lists import LiveLists
from sirocco.protocol.merger.state_pieces import Piece, at_once, joined_in_turns


class Part(Protocol):
    """Part of the state of live lists."""

    def pieces(self, rows_max: int) -> Iterator[Piece]:
        """Yields its columns, some rows at a time."""


def state_of(part: Part | LiveLists, rows_max: int = 1_000, bytes_max: int = 1_000) -> State:
    """Returns the columns of a checkpoint."""
    if isinstance(part, LiveLists):
        return at_once(part.state_in_turns(rows_max, bytes_max))
    return at_once(joined_in_turns(part.pieces(rows_max), bytes_max))
