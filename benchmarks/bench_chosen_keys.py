"""What keys cost that were chosen for their hashes, against as many by chance.

usage: python -m benchmarks.bench_chosen_keys [--keys N]

Prints one JSON object a line: CPU seconds of one thread, the worst family of chosen keys. Each case
has a process of its own, since some end it where tables are not keyed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from sirocco.index.base.handle_table import HandleTable
from sirocco.index.base.row_table import RowTable
from sirocco.index.routing.keyword_slots import KeywordSlots
from sirocco.index.standing.posting_table import PostingTable
from sirocco.index.standing.vocabulary import Vocabulary
from sirocco.index.store.term_codes import TermCodes
from sirocco.kernels.standing.pyramid import POSTING_WORDS
from tests.fuzz.chosen_keys import FAMILIES, Keys, drawn

MODULE = "benchmarks.bench_chosen_keys"

KEYS = 60_000
TRIES = 3
TIMEOUT_S = 300.0


def _handles(keys: Keys) -> None:
    table = HandleTable()
    table.put(keys, np.arange(len(keys), dtype=np.int32))
    table.get(keys)


def _rows(keys: Keys) -> None:
    table = RowTable()
    table.put(keys, np.arange(len(keys), dtype=np.int32))
    table.get(keys, keys)


def _keywords(keys: Keys) -> None:
    KeywordSlots(1, len(keys)).add(keys, np.ones((len(keys), 1), np.uint64))


def _terms(keys: Keys) -> None:
    table = Vocabulary()
    for begin in range(0, len(keys), 1_000):
        table.acquire(keys[begin : begin + 1_000])
    table.look_up(keys)


def _postings(keys: Keys) -> None:
    table = PostingTable(0)
    for begin in range(0, len(keys), 1_000):
        own = keys[begin : begin + 1_000]
        table.post(np.zeros(POSTING_WORDS, np.int32), own, np.zeros(len(own), np.int32))


def _codes(keys: Keys) -> None:
    TermCodes().use(keys[:50_000], np.full(min(len(keys), 50_000), -1, np.int64))


CASES: dict[str, Callable[[Keys], None]] = {
    "handles (handle_table)": _handles,
    "queries (row_table)": _rows,
    "keywords (keyword_filter)": _keywords,
    "terms (term_table)": _terms,
    "cells (stretch_table)": _postings,
    "counted terms (terms_kept)": _codes,
}


def _seconds(case: str, keys: Keys) -> float:
    CASES[case](keys[:100])
    best = float("inf")
    for _ in range(TRIES):
        begun = time.thread_time()
        CASES[case](keys)
        best = min(best, time.thread_time() - begun)
    return best


def _in_a_process(case: str, family: int, keys: int) -> float | str:
    command = [sys.executable, "-m", MODULE, "--keys", str(keys), "--case", case]
    try:
        done = subprocess.run(
            [*command, "--family", str(family)],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return f"more than {TIMEOUT_S:.0f} s"
    return float(done.stdout) if done.returncode == 0 else f"ends the process ({done.returncode})"


def main() -> None:
    """Prints a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument("--case")
    parser.add_argument("--family", type=int, default=-1)
    args = parser.parse_args()
    if args.case:
        is_drawn = args.family < 0
        keys = drawn(args.keys, 1) if is_drawn else FAMILIES[args.family](args.keys)
        print(_seconds(args.case, keys))
        return
    for case in CASES:
        chance = _in_a_process(case, -1, args.keys)
        chosen = [_in_a_process(case, family, args.keys) for family in range(len(FAMILIES))]
        ended = [each for each in chosen if isinstance(each, str)]
        worst = ended[0] if ended else max(chosen)  # type: ignore[type-var]
        print(json.dumps({"case": case, "by_chance_s": chance, "chosen_s": worst}), flush=True)


if __name__ == "__main__":
    main()
