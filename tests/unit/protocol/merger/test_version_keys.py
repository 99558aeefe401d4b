"""The keys of query versions in a merger: different texts never share one, old ones are found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from sirocco.protocol.contract import query_specs as specs
from sirocco.protocol.contract.positions import Reached, position_of
from sirocco.protocol.contract.query_specs import Spec, read_spec
from sirocco.protocol.merger.live_lists import LiveLists
from tests.support.list_records import (
    End,
    Item,
    ListVersion,
    Match,
    Terms,
    found_of,
    knn_spec,
    terms_spec,
)
from tests.support.merger_states import state_of

NEAR = ListVersion("near", knn_spec("near", 2))
EVIL = ListVersion("evil", knn_spec("evil", 2), "eve")
WORDS = ListVersion("words", terms_spec("words", 2))


class Lists:
    """The lists from one slot's reports."""

    def __init__(self) -> None:
        self.lists = LiveLists(slots=1)
        self.reached = Reached()
        self.end = 0

    def say(self, *items: Item, time_ms: int = 0) -> list[tuple[str, tuple[Any, ...]]]:
        at, end = position_of(self.end), position_of(self.end + 1)
        self.end += 1
        found = found_of([(0, at, end, time_ms)], [(0, at, each) for each in items])
        before_ms = np.array([self.reached.times_ms.get(0, 0)], np.int64)
        fresh_from = self.reached.accept(found.intervals)
        is_fresh = np.ones(len(found.matches), np.bool_)
        self.lists.take(found, is_fresh, fresh_from, fresh_from, self.reached, before_ms)
        self.lists.advance(self.reached, found.intervals)
        self.lists.complete(99)
        return [
            (bytes(each.queries.ids).decode(), tuple(each.lists.ids.tolist()))
            for each in self.lists.flush()
        ]


def test_texts_with_one_hash_have_lists_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specs.xxhash, "xxh3_64_intdigest", lambda data: 7)  # type: ignore[attr-defined]
    specs._kept.cache_clear()
    lists = Lists()
    assert lists.say(Match(NEAR, 1, 5.0)) == [("near", (1,))]
    assert lists.say(Match(EVIL, 2, 4.0)) == [("evil", (2,))]
    lists.say(End(EVIL))
    assert lists.say(Match(NEAR, 3, 1.0)) == [("near", (3, 1))]
    specs._kept.cache_clear()


@contextmanager
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes versions known by the hash of former mergers."""

    def read(text: str) -> Spec:
        spec = read_now(text)
        ended = (
            None if spec.ended is None else read(text[len(specs._ENDED) :].rpartition(specs._AT)[0])
        )
        return Spec(
            kind=spec.kind,
            key=spec.former_key,
            former_key=0,
            k=spec.k,
            ranked=spec.ranked,
            ended=ended,
            ended_ms=spec.ended_ms,
            ended_by=spec.ended_by,
        )

    read_now = read_spec
    with monkeypatch.context() as patched:
        patched.setattr("sirocco.protocol.merger.live_lists.read_spec", read)
        yield


def restored(lists: Lists, *, is_old: bool) -> Lists:
    state = dict(state_of(lists.lists))
    if is_old:
        for name in ("former.keys", "former.new_keys"):
            del state[name]
    lists.lists = LiveLists(slots=1)
    lists.lists.restore(state)
    return lists


@pytest.mark.parametrize("is_saved_again", [False, True])
def test_what_an_old_checkpoint_knows_continues_and_ends(
    is_saved_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = Lists()
    with as_before(monkeypatch):
        lists.say(Match(NEAR, 1, 5.0))
        lists.say(Terms(WORDS, 100, (("a", 2),)))
    restored(lists, is_old=True)
    assert lists.lists.former
    if is_saved_again:
        restored(lists, is_old=False)
    # It continues from the last sent list.
    assert lists.say(Match(NEAR, 2, 4.0)) == [("near", (2, 1))]
    if is_saved_again:
        restored(lists, is_old=False)
    sent = lists.say(Terms(WORDS, 100, (("a", 1), ("b", 2))), time_ms=200)
    assert [name for name, _ in sent] == ["words"]
    assert len(lists.lists.steps) == 1
    lists.say(End(NEAR))
    assert len(lists.lists.knn) == 0
    assert lists.say(Match(NEAR, 3, 1.0)) == []
    # Another query that has the old key is different.
    key = read_spec(WORDS.spec).former_key
    stranger = Spec(kind=specs.KIND_KNN, key=5, former_key=key)  # type: ignore[attr-defined]
    assert lists.lists.former.known(stranger) is stranger


def test_a_former_key_is_forgotten_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = Lists()
    with as_before(monkeypatch):
        lists.say(Match(NEAR, 1, 5.0))
    restored(lists, is_old=True)
    lists.say(End(NEAR, by=(0, 3)))
    lists.lists.versions.settle({0: 4}, np.array([position_of(2)]))
    lists.say(time_ms=10)
    lists.lists.forget(lists.reached)
    assert not lists.lists.former
