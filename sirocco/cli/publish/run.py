"""Publishes a file: read in batches, at a given rate, with bad lines reported."""

from __future__ import annotations

import argparse
import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from sirocco_api.v1.columns_pb2 import ObjectColumns as ObjectsMessage
from sirocco_client import Client, Publisher, Rejected, SiroccoError

from sirocco.cli.files.object_format import read_by_options
from sirocco.cli.files.object_lines import ObjectLines
from sirocco.cli.publish.stalls import Stalls
from sirocco.cli.terminal.bad_lines import BadLines
from sirocco.cli.terminal.progress import Bar, lines_total
from sirocco.cli.terminal.remote import connect
from sirocco.cli.terminal.status import ExitCode, counted
from sirocco.cli.terminal.terminal import ending_with, note
from sirocco.codec.columns import put_objects
from sirocco.loadgen.lines import ReadBatch
from sirocco.loadgen.live_lines import is_live
from sirocco.loadgen.pace import Pace
from sirocco.model.errors import InvalidArgument

_BATCH_ROWS = 1_000
_STANDARD_INPUT = Path("/dev/stdin")

# How long a run that ends early waits for requests in flight: the user has pressed ^C and waits.
_EARLY_END_S = 3.0

# How often bad lines are reported that only waited for acknowledgements.
_SETTLE_S = 0.1


def run_publish(args: argparse.Namespace) -> int:
    """Publishes the file of the options; returns the exit status."""
    path = _STANDARD_INPUT if args.file == "-" else Path(args.file)
    if not is_live(path):
        # Before anything else is started.
        path.open("rb").close()
    pace = Pace(args.rate)
    rows = pace.batch_rows(_BATCH_ROWS)
    batches = read_by_options(path, args.file, rows, args.format, args.map)
    run = _Run(path, args.file, pace, batches)
    begin_s = time.monotonic()

    def result() -> str | dict[str, object]:
        seconds = time.monotonic() - begin_s
        if args.json:
            return run.summary(seconds)
        objects = counted(run.acknowledged, "object", "objects")
        return f"{objects} acknowledged in {seconds:.1f} s"

    with ending_with(result), connect(args) as client, Bar() as bar:
        run.publish(client, bar)
    return ExitCode.BAD_LINES if run.bad.count else ExitCode.OK


class _Run:
    """The publishing of one file.

    Attributes:
        bad: Lines that were not objects, or that the cluster refused.
    """

    def __init__(self, path: Path, name: str, pace: Pace, batches: Iterator[ReadBatch]) -> None:
        self.bad = BadLines(name)
        self._path = path
        self._name = name
        self._batches = batches
        self._pace = pace
        self._lines = ObjectLines()
        self._stalls = Stalls(name)
        # Number of objects taken, and the last line of these.
        self._taken = (0, 0)
        self._refused = 0
        self._publisher: Publisher | None = None
        self._token = ""

    @property
    def acknowledged(self) -> int:
        """Number of objects in the log."""
        return 0 if self._publisher is None else self._publisher.acknowledged - self._refused

    def summary(self, seconds: float) -> dict[str, object]:
        """Returns the summary for programs."""
        return {
            "objects": self.acknowledged,
            "bad_lines": self.bad.count,
            "seconds": round(seconds, 3),
            "position_token": "" if self._publisher is None else self._publisher.position_token,
        }

    def publish(self, client: Client, bar: Bar) -> None:
        """Publishes everything, and waits for the acknowledgements."""
        publisher = self._publisher = client.publisher(on_rejected=self._refuse)
        with self._settling():
            try:
                bar.begin("publishing objects", lines_total(self._path, bar))
                for batch in self._batches:
                    self._send(batch, publisher)
                    bar.advance(len(batch.lines) + len(batch.bad))
                publisher.flush()
            except BaseException:
                self._end_early(publisher)
                raise
            publisher.close()

    def _end_early(self, publisher: Publisher) -> None:
        """Waits for what is under way, and reports after which line to go on."""
        rest = "may or may not have been published"
        with contextlib.suppress(SiroccoError):
            publisher.close(_EARLY_END_S)
            rest = "was not published"
        if known := publisher.acknowledged:
            count, line = self._taken
            line = line if known >= count else self._lines.line_of(known)
            note(f"{self._name}: what follows line {line:,} {rest}")

    def _send(self, batch: ReadBatch, publisher: Publisher) -> None:
        self._lines.add(batch.lines)
        for one in batch.bad:
            self.bad.add(one.line, one.error)
        # One value: the thread that reports bad lines must not see half of it.
        lines = [*batch.lines[-1:].tolist(), *(one.line for one in batch.bad)]
        self._taken = (self._lines.count, max(lines, default=self._taken[1]))
        if not len(batch.lines):
            return
        self._pace.wait(len(batch.lines))
        message = ObjectsMessage()
        put_objects(message, batch.objects)
        publisher.publish_columns(message)

    def _refuse(self, one: Rejected) -> None:
        """Records an object that the cluster refuses, on the publisher's thread."""
        self._refused += 1
        error = InvalidArgument(one.error.message, field=one.error.field)
        self.bad.add(self._lines.line_of(one.number), error)

    @contextlib.contextmanager
    def _settling(self) -> Iterator[None]:
        """Reports bad lines during the run; a pipe may never end."""
        stopping = threading.Event()

        def settle() -> None:
            while not stopping.wait(_SETTLE_S):
                self._settle()

        thread = threading.Thread(target=settle, name="bad-lines", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()
            self.bad.finish()

    def _settle(self) -> None:
        assert self._publisher is not None
        count, line = self._taken
        known = self._publisher.acknowledged
        self._stalls.look(known, count)
        self.bad.settle(line if known >= count else self._lines.line_of(known + 1))
