"""A few seeds of the fuzzer over what clients choose; `make fuzz` runs many."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from tests.fuzz.__main__ import WORKS


@pytest.mark.parametrize("work", WORKS.values(), ids=lambda each: each.__name__)
@pytest.mark.parametrize("seed", range(3))
def test_chosen_keys_break_nothing(seed: int, work: Callable[[Random], None]) -> None:
    print(f"seed {seed}: python -m tests.fuzz --seeds {seed}:{seed + 1} --only {work.__name__}")
    work(Random(f"{seed} {work.__name__}"))
