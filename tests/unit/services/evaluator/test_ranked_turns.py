"""A ranked search that takes long lets other questions go first, and ends when nobody waits."""

from __future__ import annotations

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sirocco.model.errors import DeadlineExceeded
from sirocco.services.evaluator.answers.ranked_answer import ranked_parts
from sirocco.services.evaluator.answers.turns import Turns


class Endless:
    """A search of a slot that takes for ever."""

    def __init__(self) -> None:
        self.pieces = 0

    def is_in_memory(self, _: object) -> bool:
        return False

    def ranked(self, *_: object) -> Generator[None, None, Any]:
        while True:
            self.pieces += 1
            yield


def parts_of(search: Endless, turns: Turns) -> Any:
    return ranked_parts(
        cast(Any, SimpleNamespace(bounds=None)), [(0, cast(Any, search))], [], turns
    )


def test_others_go_first() -> None:
    parts = parts_of(Endless(), Turns(lambda: False, slice_s=-1.0))
    assert [next(parts) for _ in range(3)] == [None] * 3


def test_it_ends_when_nobody_waits() -> None:
    search = Endless()
    with pytest.raises(DeadlineExceeded):
        next(parts_of(search, Turns(lambda: search.pieces == 5, slice_s=1_000.0)))
