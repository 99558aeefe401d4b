"""The secret of the numbers of terms: one for a cluster, created by the first process."""

from __future__ import annotations

import pytest

from sirocco.runtime.process.term_secret import SECRET_LEASE, SECRET_MS, SharedTerms
from sirocco.transport.memory_map_store import MemoryMapStore


def test_the_first_draws_it_and_the_others_find_it() -> None:
    store = MemoryMapStore()
    first, second = SharedTerms(store), SharedTerms(store)
    assert first.hashing.is_keyed
    assert first.hashing.secret == second.hashing.secret
    assert SharedTerms(MemoryMapStore()).hashing.secret != first.hashing.secret


def test_it_lasts_as_long_as_anybody_keeps_it() -> None:
    now_ms = 0.0
    store = MemoryMapStore(lambda: now_ms)
    first = SharedTerms(store)
    now_ms += SECRET_MS - 1
    first.keep()
    now_ms += SECRET_MS - 1
    assert SharedTerms(store).hashing.secret == first.hashing.secret
    now_ms += 2 * SECRET_MS
    assert SharedTerms(store).hashing.secret != first.hashing.secret


def test_a_store_that_was_lost_has_it_again_from_those_that_run() -> None:
    first = SharedTerms(MemoryMapStore())
    lost = MemoryMapStore()
    first._store = lost
    first.keep()
    assert SharedTerms(lost).hashing.secret == first.hashing.secret
    # A process with another secret leaves that alone.
    other = SharedTerms(MemoryMapStore())
    other._store = lost
    other.keep()
    assert lost.holders(SECRET_LEASE)[SECRET_LEASE] == first.hashing.secret


@pytest.mark.parametrize("held", ["garbage", "00ff", "é" * 32])
def test_what_is_no_secret_is_not_taken(held: str) -> None:
    store = MemoryMapStore()
    assert store.acquire(SECRET_LEASE, held, SECRET_MS)
    assert SharedTerms(store).hashing.is_keyed
