"""States which slots of a question were searched, in the last part of its answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from sirocco.protocol.search.messages import DONE, MOVED, Part


def with_slot_states(done: list[int], moved: list[int], parts: list[Part]) -> Iterator[Part]:
    """Yields the parts; the last one lists the slots that they cover."""
    states = sorted([*((number, DONE) for number in done), *((number, MOVED) for number in moved)])
    yield from parts[:-1]
    yield replace(
        parts[-1] if parts else Part(),
        slots=np.array([number for number, _ in states], np.uint32),
        states=np.array([state for _, state in states], np.uint8),
        is_last=True,
    )
