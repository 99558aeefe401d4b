"""Measures what phrases and beginnings of words cost; prints one JSON object per case.

usage: python benchmarks/bench_patterns.py [--queries N] [--objects M] [--phrases SHARE]
                                                 [--beginnings SHARE] [--seed S]

Two range indexes hold the same queries, on the same words with texts: one of them has a share of
phrases, of words that stand side by side in some object, and a share of beginnings, of one word.
The other has the words of these phrases, and the whole words. Passes alternate, each from the texts
of objects to pairs, as in an evaluator: analysis under a secret key, patterns, matching; CPU time
is counted. `ratio` is objects per second with patterns relative to those without, and
`matching_ratio` the same without the time of the analysis.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.compile import with_numbers
from sirocco.index.base.query_rows import QueryRows
from sirocco.index.standing.range_index import RangeIndex
from sirocco.index.standing.text.text_terms import with_patterns
from sirocco.loadgen.match_bench import BATCH, UNIT_SQUARE
from sirocco.loadgen.match_workload import VOCABULARY, MatchWorkload, make_workload
from sirocco.model.objects import pack_bytes
from sirocco.model.patterns import begins, phrase
from sirocco.model.term_hashing import TermHashing
from sirocco.model.text import TextAnalyser, hash_rows

PASSES = 3
# Syllables make beginnings that many words share, as those of a language.
CONSONANTS, VOWELS = "bcdfghjklmnprstvwz", "aeiou"
LETTERS_MIN, LETTERS_MAX = 3, 6


@dataclass(frozen=True)
class Texts:
    """Texts of objects by batch, and the places of the objects."""

    work: MatchWorkload
    batches: list[tuple[NDArray[np.uint8], NDArray[np.int64]]]
    in_order: NDArray[np.int32]


def made_words(rng: np.random.Generator) -> list[str]:
    """Returns a distinct word for each term, of one to five syllables."""
    found: dict[str, None] = {}
    while len(found) < VOCABULARY:
        syllables = rng.choice([1, 2, 3, 4, 5], p=[0.1, 0.35, 0.35, 0.15, 0.05])
        first, second = rng.integers(0, 18, syllables), rng.integers(0, 5, syllables)
        word = "".join(CONSONANTS[a] + VOWELS[b] for a, b in zip(first, second, strict=True))
        found[word + CONSONANTS[rng.integers(18)] * int(rng.random() < 0.5)] = None
    return list(found)


def made_texts(work: MatchWorkload, words: list[str], rng: np.random.Generator) -> Texts:
    """Returns texts of the workload's objects, their words in random order."""
    rows = np.repeat(np.arange(len(work.lon)), np.diff(work.object_offsets))
    in_order = work.object_terms[np.lexsort((rng.random(len(rows)), rows))]
    texts = []
    for begin, end in itertools.pairwise(work.object_offsets):
        texts.append(" ".join([words[term] for term in in_order[begin:end]]).encode())
    batches = [pack_bytes(texts[begin : begin + BATCH]) for begin in range(0, len(texts), BATCH)]
    return Texts(work, batches, in_order)


def words_of_queries(
    texts: Texts, words: list[str], rng: np.random.Generator, phrases: float, beginnings: float
) -> tuple[list[list[str]], list[list[str]]]:
    """Returns the words of each query, without patterns and with them."""
    work, offsets = texts.work, texts.work.query_offsets
    plain = [
        [words[term] for term in work.query_terms[begin:end]]
        for begin, end in itertools.pairwise(offsets)
    ]
    marked = list(plain)
    kind = rng.random(len(plain))
    owners = np.repeat(np.arange(len(work.lon)), np.diff(work.object_offsets))
    pairs = np.flatnonzero(owners[1:] == owners[:-1])
    for row in np.flatnonzero(kind < phrases).tolist():
        at = int(rng.choice(pairs))
        plain[row] = [words[term] for term in texts.in_order[at : at + 2]]
        marked[row] = [phrase(plain[row])]
    for row in np.flatnonzero((kind >= phrases) & (kind < phrases + beginnings)).tolist():
        plain[row] = plain[row][:1]
        letters = int(rng.integers(LETTERS_MIN, LETTERS_MAX + 1))
        marked[row] = [begins(plain[row][0][:letters])]
    return plain, marked


class Run:
    """An index and passes of objects through it."""

    def __init__(self, texts: Texts, queries: list[list[str]], hashing: TermHashing) -> None:
        self.texts, self.hashing = texts, hashing
        self.index = RangeIndex(UNIT_SQUARE, hashing=hashing)
        self.analyser = TextAnalyser()
        started = time.process_time()
        for rows in packed(texts.work, queries):
            self.index.insert(with_numbers(rows, hashing), 0)
        self.inserts_per_s = round(len(queries) / (time.process_time() - started))

    def once(self) -> tuple[float, float, int]:
        """Matches all objects; returns (seconds of the analysis, of the rest, pairs)."""
        work, vocabulary = self.texts.work, self.index.vocabulary
        analysed_s, pairs, started, begin = 0.0, 0, time.process_time(), 0
        for data, offsets in self.texts.batches:
            end = begin + len(offsets) - 1
            before, texts = time.process_time(), (data, offsets)
            if vocabulary.patterns is None:
                _, found = self.hashing.analyse_both(*texts, self.analyser)
                analysed_s += time.process_time() - before
            else:
                _, tokens, in_order = self.hashing.analyse_in_order(*texts, self.analyser)
                analysed_s += time.process_time() - before
                patterns = self.hashing.patterns(
                    *texts,
                    vocabulary.patterns,
                    self.analyser,
                    in_order=in_order,
                    near=self.index.near_patterns(work.lon[begin:end], work.lat[begin:end]),
                )
                found = with_patterns(tokens, *patterns)
            pairs += len(
                self.index.match(
                    work.lon[begin:end], work.lat[begin:end], found.offsets, found.terms,
                    np.zeros(end - begin, np.int64), np.arange(begin + 1, end + 1),
                )
            )  # fmt: skip
            begin = end
        return analysed_s, time.process_time() - started - analysed_s, pairs


def packed(work: MatchWorkload, queries: list[list[str]]) -> Iterator[QueryRows]:
    """Yields the queries in batches, as columns with words."""
    for begin in range(0, len(queries), BATCH):
        own = queries[begin : begin + BATCH]
        known: dict[str, int] = {}
        numbered = [known.setdefault(word, len(known)) for one in own for word in one]
        rows = np.array(numbered, np.int32)
        words, word_offsets = pack_bytes([word.encode() for word in known])
        offsets = np.zeros(len(own) + 1, np.int64)
        np.cumsum([len(one) for one in own], out=offsets[1:])
        hashes = hash_rows(words, word_offsets)
        plain = QueryRows.of_boxes(work.boxes[begin : begin + BATCH], offsets, hashes[rows])
        yield replace(plain, words=words, word_offsets=word_offsets, pos_word_rows=rows)


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--queries", type=int, default=1_000_000)
    parser.add_argument("--objects", type=int, default=100_000)
    parser.add_argument("--phrases", type=float, default=0.05)
    parser.add_argument("--beginnings", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=20260101)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    work = make_workload(options.queries, options.objects, options.seed)
    words = made_words(rng)
    texts = made_texts(work, words, rng)
    hashing = TermHashing(bytes(rng.integers(0, 256, 16).tolist()).hex())
    queries = words_of_queries(texts, words, rng, options.phrases, options.beginnings)
    runs = [Run(texts, each, hashing) for each in queries]
    times = [[run.once() for run in runs] for _ in range(1 + PASSES)][1:]
    rest = [min(one[i][1] for one in times) for i in range(2)]
    whole = [min(one[i][0] + one[i][1] for one in times) for i in range(2)]
    row = {
        "queries": options.queries,
        "objects": options.objects,
        "phrases": options.phrases,
        "beginnings": options.beginnings,
        "ratio": round(whole[0] / whole[1], 3),
        "matching_ratio": round(rest[0] / rest[1], 3),
        "objects_per_s": [round(options.objects / each) for each in whole],
        "matches": [times[0][i][2] for i in range(2)],
        "inserts_per_s": [run.inserts_per_s for run in runs],
    }
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
