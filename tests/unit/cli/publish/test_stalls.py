"""A publish whose objects are not acknowledged says so."""

from __future__ import annotations

from sirocco.cli.publish.stalls import STALL_S, Stalls


def test_a_stall_and_its_end_are_told_once() -> None:
    """With Kafka's disk full nothing was said, for as long as the router waited for it."""
    now_s = 0.0
    lines: list[str] = []
    stalls = Stalls("o", lines.append, lambda: now_s)
    # Nothing is to come: as slow as the file is read.
    for known, count, seconds in ((0, 0, 2 * STALL_S), (0, 5, 1.0), (3, 5, STALL_S - 1)):
        now_s += seconds
        stalls.look(known, count)
    assert not lines
    for _ in range(3):
        now_s += STALL_S
        stalls.look(3, 5)
    assert lines == ["o: nothing was acknowledged for 10 s; still waiting"]
    stalls.look(4, 5)
    stalls.look(5, 5)
    assert lines[1:] == ["o: objects are acknowledged again"]
