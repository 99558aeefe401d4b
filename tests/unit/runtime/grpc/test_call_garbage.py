"""Garbage of large gRPC calls is collected by its bytes."""

from __future__ import annotations

from sirocco.runtime.grpc.call_garbage import (
    AGED_BYTES,
    ENDED_BYTES_MAX,
    ENDED_BYTES_MIN,
    CallGarbage,
)

LARGE = 6 << 20


def test_small_calls_are_left_to_the_interpreter() -> None:
    rounds: list[int] = []
    garbage = CallGarbage(rounds.append)
    for _ in range(10_000):
        garbage.begin(1_000)
        garbage.end(1_000)
    assert rounds == []


def test_large_calls_that_have_ended_are_collected() -> None:
    rounds: list[int] = []
    garbage = CallGarbage(rounds.append)
    calls = -(-ENDED_BYTES_MIN // LARGE)
    for _ in range(3 * calls):
        garbage.begin(LARGE)
        garbage.end(LARGE)
    assert rounds == [1, 1, 1]


def test_a_round_waits_until_most_of_the_calls_have_ended() -> None:
    rounds: list[int] = []
    garbage = CallGarbage(rounds.append)
    for _ in range(60):
        garbage.begin(LARGE)
    ended = 0
    while not rounds:
        garbage.end(LARGE)
        ended += 1
    # A ninth is open.
    assert ended == 54


def test_what_is_always_open_is_collected_by_a_longer_round() -> None:
    rounds: list[int] = []
    garbage = CallGarbage(rounds.append)
    for _ in range(20):
        garbage.begin(LARGE)
    passed = 0
    while 2 not in rounds:
        garbage.begin(LARGE)
        garbage.end(LARGE)
        passed += LARGE
    # 120 MB are open at each round, and count as old.
    assert rounds == [1, 1, 1, 1, 2]
    assert passed <= 5 * (ENDED_BYTES_MAX + LARGE)
    assert 5 * 20 * LARGE >= AGED_BYTES
