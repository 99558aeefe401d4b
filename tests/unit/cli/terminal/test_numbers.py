"""Numbers of the command line are refused by name, with their bounds, before any work."""

from __future__ import annotations

import pytest

from sirocco.cli.__main__ import main

ROUTER = ("--router", "127.0.0.1:9")


@pytest.mark.parametrize(
    ("option", "arguments", "values"),
    [
        ("--rate", ("publish", *ROUTER, "/dev/null"), ("0", "-5", "fast", "nan", "inf", "1e-9")),
        ("--timeout", ("cluster", *ROUTER), ("0", "-1", "nan", "inf", "1e300", "soon")),
        ("--count", ("subscribe", "s", *ROUTER), ("0", "-1", "1.5", "9" * 30, "²")),
        ("--now", ("search", "range", *ROUTER), ("1.5", "9" * 19, "9" * 5_000, "now")),
        ("-k", ("search", "knn", *ROUTER), ("1.5", "9" * 19, "many", "٣")),
        ("--radius", ("search", "ranked", *ROUTER), ("nan", "inf", "far")),
        ("--arrival", ("explain", "q", *ROUTER), ("1e3", "9" * 19)),
        ("--evaluators", ("local", "up"), ("0", "-1", "1.5", "65537", "²")),
        ("--slots", ("local", "up"), ("0", "65537")),
        ("--leaves", ("local", "up"), ("0", "-3")),
        ("--evaluators", ("demo",), ("0", "two")),
        ("--seconds", ("demo",), ("0", "-1", "nan", "1e9")),
        ("--rate", ("demo",), ("0", "-1", "nan")),
        ("--seed", ("demo",), ("-1", "x")),
        ("--queries", ("bench", "match"), ("0", "-1", "x")),
        ("--routers", ("replay", "--objects", "o", "--results", "r"), ("0", "²", "65537")),
        ("--rate", ("replay", "--objects", "o", "--results", "r"), ("0", "-1", "nan")),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(
    option: str,
    arguments: tuple[str, ...],
    values: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    for value in values:
        with pytest.raises(SystemExit) as ended:
            main([*arguments, f"{option}={value}" if option.startswith("--") else option + value])
        output = capsys.readouterr().err
        assert ended.value.code == 2, value
        assert f"argument {option}" in output, value
        assert "Traceback" not in output
        assert len(output) < 3_000


def test_a_bad_scale_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for wanted in ("evaluator=²", "evaluator=65537", "evaluator=-1", "baker=2", "evaluator", "="):
        with pytest.raises(SystemExit) as ended:
            main(["local", "scale", wanted])
        assert ended.value.code == 2
        assert "SERVICE=N" in capsys.readouterr().err
