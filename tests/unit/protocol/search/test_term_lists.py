"""Which terms lists of the most frequent ones leave open, against a count of everything."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np

from sirocco.protocol.search.messages import Part, TermSums
from sirocco.protocol.search.term_lists import TermList, candidates, lacking
from tests.support.seeds import drawn_seed

NO_TEXTS = np.empty(0, np.uint8), np.zeros(1, np.int64)


def part_of(counts: dict[int, int]) -> Part:
    return Part(
        terms=TermSums(
            np.array(list(counts), np.uint64), np.array(list(counts.values()), np.uint64), *NO_TEXTS
        )
    )


def list_of(counts: Counter[int], listed: int, *, slack: int = 0) -> TermList:
    """Returns a list as an evaluator makes it, with all ties."""
    ordered = counts.most_common()
    if len(ordered) <= listed:
        return TermList([part_of(dict(ordered))], 0)
    least = ordered[listed - 1][1]
    kept = {term: count for term, count in ordered if count >= least}
    rest = max((count for term, count in ordered if term not in kept), default=0)
    return TermList([part_of(kept)], rest + slack)


def test_candidates_hold_all_of_the_most_frequent_terms_with_ties() -> None:
    seed = drawn_seed()
    dice = random.Random(seed)
    decided = 0
    for _ in range(2_000):
        words = dice.randrange(1, 40)
        several = [
            Counter(int(dice.paretovariate(0.7)) % words for _ in range(dice.randrange(60)))
            for _ in range(dice.randrange(1, 5))
        ]
        k, listed = dice.randrange(1, 8), dice.randrange(1, 10)
        lists = [list_of(one, listed, slack=dice.randrange(2)) for one in several]
        total = sum(several, Counter())
        least = sorted(total.values(), reverse=True)[k - 1] if len(total) >= k else 1
        true = {term for term, count in total.items() if count >= least}
        terms = candidates(lists, k)
        if terms is None:
            continue
        decided += 1
        assert true <= set(terms.tolist()), f"seed {seed}"
        # Evaluators that lack a count are asked for it, and then the sums are true.
        sums: Counter[int] = Counter()
        for one, own in zip(lists, several, strict=True):
            missing = lacking(one, terms).tolist()
            one.parts.append(part_of({term: own[term] for term in missing}))
            hashes, counts = one.sums
            for term, count in zip(hashes.tolist(), counts.tolist(), strict=True):
                sums[term] += count * (term in set(terms.tolist()))
            assert not len(lacking(one, terms))
        assert {term: sums[term] for term in true} == {term: total[term] for term in true}
    assert decided > 500


def test_bounds_that_reach_the_threshold_decide_nothing() -> None:
    one = TermList([part_of({1: 5, 2: 4})], 2)
    other = TermList([part_of({1: 5, 3: 4})], 2)
    # A term that neither names may have 4 objects, as many as the second of the answer.
    assert candidates([one, other], 2) is None
    # One less, and it cannot be second.
    one.rest = 1
    found = candidates([one, other], 2)
    assert found is not None
    assert found.tolist() == [1, 2, 3]
    assert lacking(one, found).tolist() == [3]
    assert lacking(other, found).tolist() == [2]


def test_a_whole_list_lacks_nothing() -> None:
    whole = TermList([part_of({1: 5})], 0)
    assert candidates([whole], 3) is not None
    assert not len(lacking(whole, np.array([1, 2], np.uint64)))
