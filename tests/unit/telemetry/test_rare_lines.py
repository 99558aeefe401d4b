"""Warnings that strangers cause fill no log."""

from __future__ import annotations

import logging

from sirocco.telemetry.rare_lines import PAUSE_S, RareLines


def line(text: str, *values: object, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord("uvicorn.error", level, "", 0, text, values, None)


def test_the_first_warning_of_a_kind_passes_once_in_a_while() -> None:
    now_s = 0.0
    lines = RareLines(lambda: now_s)
    assert [lines.filter(line("bad request from %s", number)) for number in range(3)] == [
        *(True, False, False)
    ]
    assert lines.filter(line("another kind"))
    now_s = PAUSE_S
    assert lines.filter(line("bad request from %s", 4))


def test_errors_always_pass() -> None:
    lines = RareLines(lambda: 0.0)
    assert all(lines.filter(line("a defect", level=logging.ERROR)) for _ in range(3))


def test_few_kinds_are_remembered() -> None:
    lines = RareLines(lambda: 0.0)
    for number in range(1_000):
        lines.filter(line(f"kind {number}"))
    assert len(lines._passed_s) <= 64
