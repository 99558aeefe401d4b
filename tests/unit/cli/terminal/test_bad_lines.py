"""Bad lines are reported in order, and equal ones only a few times."""

from __future__ import annotations

from sirocco.cli.terminal.bad_lines import EQUAL_MAX, BadLines


def test_bad_lines_are_reported_in_the_order_of_lines() -> None:
    reported: list[str] = []
    bad = BadLines("f", reported.append)
    bad.add(7, "seven")
    bad.add(3, "three")
    bad.settle(5)
    assert reported == ["f:3: three"]
    bad.add(6, "six")
    bad.finish()
    assert reported == ["f:3: three", "f:6: six", "f:7: seven"]
    assert bad.count == 3


def test_the_eleventh_equal_one_is_counted() -> None:
    reported: list[str] = []
    bad = BadLines("f", reported.append)
    for line in range(1, EQUAL_MAX + 1):
        bad.add(line, "lon: is missing")
    bad.add(EQUAL_MAX + 1, "lat: is missing")
    bad.finish()
    assert len(reported) == EQUAL_MAX + 1

    reported.clear()
    bad.add(20, "lon: is missing")
    bad.finish()
    assert reported == ["f: 1 more line: lon: is missing"]


def test_different_bad_lines_are_all_reported() -> None:
    reported: list[str] = []
    bad = BadLines("f", reported.append)
    for line in range(1, 51):
        bad.add(line, f"lon: {line + 200} is outside [-180, 180]")
    bad.finish()
    assert len(reported) == 50
