"""Phrases, beginnings and texts that a client chose cost little more than others of the same sizes.

Steps are counted instead of time: see `tests.fuzz.chosen_phrases`. At most three times as many are
allowed, as `docs/results/hardening.md` says of all keys that a client may choose.
"""

import json
import os
import subprocess
import sys

import pytest

from sirocco.kernels.jit.compiled import JIT_ENABLED
from tests.fuzz.chosen_phrases import FAMILIES, by_chance, chosen, search

PATTERNS, WORDS = 60, 240
TIMES_MAX = 3.0


def test_steps_of_chosen_phrases_and_texts() -> None:
    command = [sys.executable, "-m", "tests.fuzz.chosen_phrases", str(PATTERNS), str(WORDS)]
    environment = {**os.environ, "SIROCCO_JIT": "0"}
    done = subprocess.run(command, env=environment, check=True, capture_output=True)
    times = json.loads(done.stdout)
    assert times.keys() == FAMILIES.keys()
    assert {family: ratio for family, ratio in times.items() if ratio > TIMES_MAX} == {}


@pytest.mark.skipif(not JIT_ENABLED, reason="the sizes are for compiled kernels")
@pytest.mark.parametrize("family", FAMILIES)
def test_chosen_texts_hold_what_they_were_chosen_for(family: str) -> None:
    case = chosen(family, 600, 2_000)
    if family not in {"phrases over two words", "each but for its last word"}:
        assert search(case)() >= 10
    assert search(by_chance(case))() <= len(case.words) // 10
