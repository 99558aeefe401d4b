"""Commands that are ended by a signal, or whose outputs take nothing, end as they should."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from sirocco.cli import __main__ as tool
from sirocco.cli.__main__ import main
from sirocco.cli.terminal.terminal import console
from tests.support.fake_cluster import Failure, FakeCluster, PublishPlan


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    found = FakeCluster()
    yield found
    found.stop()


def as_command(monkeypatch: pytest.MonkeyPatch, run: Callable[[], int]) -> None:
    """Lets the tool run a function as each command."""

    class Parser:
        def parse_args(self, _: object) -> argparse.Namespace:
            return argparse.Namespace(run=lambda _: run(), debug=False)

    monkeypatch.setattr(tool, "_parser", lambda _: Parser())


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_a_command_as_an_interrupt_does(
    number: signal.Signals,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They ended it at once: a service that was stopped did not say how far it had come."""
    steps = []

    def run() -> int:
        try:
            signal.raise_signal(number)
        finally:
            steps.append("cleaned up")
        return 0

    as_command(monkeypatch, run)
    # What runs the tests may ignore it.
    before = signal.signal(number, signal.SIG_DFL)
    try:
        assert main([]) == status
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)
    assert steps == ["cleaned up"]
    assert capsys.readouterr().err == f"sirocco: ended by {number.name}\n"


def test_a_signal_that_is_ignored_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:

        def run() -> int:
            signal.raise_signal(signal.SIGHUP)
            return 0

        as_command(monkeypatch, run)
        assert main([]) == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_interrupt_while_a_command_is_loaded_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: object) -> argparse.ArgumentParser:
        raise KeyboardInterrupt

    monkeypatch.setattr(tool, "_parser", interrupted)
    assert main(["publish"]) == 130
    assert capsys.readouterr().err == "sirocco: interrupted\n"


@pytest.fixture
def unread() -> Iterator[Callable[[str], None]]:
    """Returns a function that makes an output a pipe that nobody reads, or a full file."""
    with pytest.MonkeyPatch.context() as patch:
        opened = []

        def replace(name: str, kind: str = "pipe") -> None:
            if kind == "full":
                file = open("/dev/full", "w")  # noqa: SIM115 - closed below
            else:
                reading, writing = os.pipe()
                os.close(reading)
                file = open(writing, "w")  # noqa: SIM115
            opened.append(file)
            patch.setattr(sys, name, file)

        yield replace
    for file in opened:
        with suppress(OSError):
            file.close()


def good(number: int) -> str:
    return json.dumps({"id": number, "lon": 1.5, "lat": 2.5, "text": "fire"})


def query(number: int) -> str:
    return json.dumps({"id": f"q{number}", "kind": "range", "mode": "continuous", "text": "fire"})


def test_the_end_of_a_publish_does_not_depend_on_who_reads(
    cluster: FakeCluster,
    tmp_path: Path,
    unread: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With its reader gone it had ended well, whatever had happened; and nobody knew the count."""
    path = tmp_path / "o"
    path.write_text("\n".join([good(1), "bad"]))
    unread("stdout")
    assert main(["publish", "--router", cluster.router, str(path)]) == 3
    assert "\n1 object acknowledged in " in capsys.readouterr().err
    path.write_text("\n".join(map(good, range(5_000))))
    refusal = Failure(grpc.StatusCode.PERMISSION_DENIED)
    cluster.publish_plans.append(PublishPlan(requests=2, answered=1, failure=refusal))
    unread("stdout")
    assert main(["publish", "--router", cluster.router, "--json", str(path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"{path}: what follows line 1,000 may or may not have been published"
    assert json.loads(lines[1])["objects"] == 1_000


def test_a_result_that_a_full_disk_does_not_take_is_an_error(
    cluster: FakeCluster,
    tmp_path: Path,
    unread: Callable[[str, str], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "o"
    path.write_text(good(1))
    unread("stdout", "full")
    assert main(["publish", "--router", cluster.router, str(path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("1 object acknowledged in ")
    assert "No space left on device" in lines[1]


@pytest.mark.parametrize("kind", ["pipe", "full"])
def test_work_goes_on_where_errors_are_not_read(
    kind: str,
    cluster: FakeCluster,
    tmp_path: Path,
    unread: Callable[[str, str], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Queries behind a bad line were not registered, which was called well."""
    path = tmp_path / "q"
    path.write_text("\n".join(["bad", *map(query, range(2_000))]))
    unread("stderr", kind)
    options = ("--router", cluster.router, "--subscriber", "ops")
    assert main(["queries", "register", str(path), *options]) == 3
    assert capsys.readouterr().out == "2,000 queries registered\n"


@pytest.mark.parametrize("step", ["register", "remove"])
def test_changes_go_on_where_results_are_not_read(
    step: str,
    cluster: FakeCluster,
    tmp_path: Path,
    unread: Callable[[str], None],
) -> None:
    path = tmp_path / "q"
    path.write_text("\n".join(["bad", *map(query, range(2_000))]))
    options = ("--router", cluster.router, "--json")
    if step == "remove":
        assert main(["queries", "register", str(path), *options, "--subscriber", "ops"]) == 3
        path.write_text("\n".join(["{", *(f"q{number}" for number in range(2_000))]))
    unread("stdout")
    source = ("--file", str(path)) if step == "remove" else (str(path), "--subscriber", "ops")
    assert main(["queries", step, *source, *options]) == 3
    assert len(cluster.queries) == (0 if step == "remove" else 2_000)


def test_a_table_that_nobody_reads_is_no_error(
    monkeypatch: pytest.MonkeyPatch, unread: Callable[[str], None]
) -> None:
    """It ended with status 1."""
    unread("stdout")

    def run() -> int:
        console().print("a table")
        return 1

    as_command(monkeypatch, run)
    assert main([]) == 0
