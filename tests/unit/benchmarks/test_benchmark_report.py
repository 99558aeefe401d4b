"""The report of the benchmarks keeps a section for each script."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import report


def run_of(name: str, *rows: report.Row) -> report.Run:
    return report.Run(name, f"python {name}.py", "a machine", "2026-01-02 03:04", "abc", rows)


def test_a_rerun_replaces_its_own_section_only() -> None:
    text = report.replace_section("", run_of("match", {"objects_per_s": 1}))
    text = report.replace_section(text, run_of("assign", {"moves": 5}))
    again = report.replace_section(text, run_of("match", {"objects_per_s": 2}))
    assert again.startswith(report.HEAD)
    assert again.index("## assign") < again.index("## match")
    assert "| 5 |" in again
    assert "| 2 |" in again
    assert "| 1 |" not in again
    assert report.replace_section(again, run_of("match", {"objects_per_s": 2})) == again


def test_rows_of_one_shape_share_a_table() -> None:
    table = report.render_table(
        [{"n": 1, "s": 0.5}, {"n": 1234567, "s": 98765.4}, {"other": "x|y"}]
    )
    assert table.splitlines() == [
        "| n | s |",
        "| --- | --- |",
        "| 1 | 0.5 |",
        "| 1,234,567 | 98,765 |",
        "",
        "| other |",
        "| --- |",
        "| x\\|y |",
    ]


def test_a_wide_row_lies_on_its_side() -> None:
    table = report.render_table([{f"m{i}": i for i in range(11)}])
    assert table.splitlines()[0] == "|  | value |"
    assert "| m10 | 10 |" in table


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "probe.py"
    monkeypatch.setattr(report, "ROOT", tmp_path)
    monkeypatch.setattr(report, "scripts", lambda: {"probe": path})
    return path


def test_a_script_is_run_and_reported(
    script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script.write_text('import sys\nprint(\'{"n": 3, "args": "%s"}\' % " ".join(sys.argv[1:]))\n')
    target = tmp_path / "docs" / "report.md"
    assert report.main(["probe", "--report", str(target), "--", "--queries", "7"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "benchmark": "probe",
        "n": 3,
        "args": "--queries 7",
    }
    written = target.read_text()
    assert "`python probe.py --queries 7`" in written
    assert "| 3 | --queries 7 |" in written


@pytest.mark.parametrize("source", ["print('hello')", "print('[1]')", "", "raise SystemExit(4)"])
def test_a_failing_script_is_reported_and_changes_nothing(
    script: Path, tmp_path: Path, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    script.write_text(source)
    target = tmp_path / "report.md"
    assert report.main(["--report", str(target)]) == 1
    assert "error: probe" in capsys.readouterr().err
    assert not target.exists()


def test_a_benchmark_is_named_with_or_without_its_prefix(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "bench_probe.py"
    monkeypatch.setattr(report, "scripts", lambda: {script.stem: script})
    ran: list[str] = []

    def measure(path: Path, arguments: Sequence[str]) -> report.Run:
        ran.append(path.stem)
        raise report.BenchmarkError("not run here")

    monkeypatch.setattr(report, "measure", measure)
    assert report.main(["probe", "bench_probe"]) == 1
    assert ran == ["bench_probe", "bench_probe"]
    with pytest.raises(SystemExit):
        report.main(["prob"])
    assert "no such benchmark: prob; there are probe" in capsys.readouterr().err
