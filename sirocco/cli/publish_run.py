"""Publishing a file: read in batches, at a pace, bad lines told apart."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from sirocco_api.v1.columns_pb2 import ObjectColumns as ObjectsMessage
from sirocco_client import Rejected

from loadgen.lines import BadLine, read_objects
from loadgen.pace import Pace
from sirocco.cli.object_lines import ObjectLines
from sirocco.cli.progress import Bar
from sirocco.cli.remote import connect
from sirocco.cli.status import ExitCode, counted
from sirocco.codec.columns import put_objects
from sirocco.model.errors import InvalidArgument

_BATCH_ROWS = 1_000
_STANDARD_INPUT = Path("/dev/stdin")


def run_publish(args: argparse.Namespace) -> int:
    """Publishes the file that the options name; returns the exit status."""
    path = _STANDARD_INPUT if args.file == "-" else Path(args.file)
    pace, lines = Pace(args.rate), ObjectLines()
    bad_lines = 0
    refusals = _Refusals(args.file, lines)
    begin_s = time.monotonic()
    with (
        connect(args) as client,
        client.publisher(on_rejected=refusals.tell) as publisher,
        Bar() as bar,
    ):
        bar.begin("publishing objects")
        for batch in read_objects(path, args.file, pace.batch_rows(_BATCH_ROWS)):
            for bad in batch.bad:
                _tell(bad)
            bad_lines += len(batch.bad)
            pace.wait(len(batch.lines))
            message = ObjectsMessage()
            put_objects(message, batch.objects)
            lines.add(batch.lines)
            publisher.publish_columns(message)
            bar.advance(len(batch.lines))
        result = publisher.flush()
    seconds = time.monotonic() - begin_s
    summary = {
        "objects": lines.count - refusals.count,
        "bad_lines": bad_lines + refusals.count,
        "seconds": round(seconds, 3),
        "position_token": result.position_token,
    }
    if args.json:
        print(json.dumps(summary))
    else:
        objects = counted(lines.count - refusals.count, "object", "objects")
        print(f"{objects} acknowledged in {seconds:.1f} s")
    return ExitCode.BAD_LINES if summary["bad_lines"] else ExitCode.OK


class _Refusals:
    """Tells of objects that the cluster refuses, when it does; a pipe may not end.

    Attributes:
        count: how many.
    """

    def __init__(self, file: str, lines: ObjectLines) -> None:
        self.count = 0
        self._file = file
        self._lines = lines

    def tell(self, one: Rejected) -> None:
        """Says on which line it stood."""
        self.count += 1
        error = InvalidArgument(one.error.message, field=one.error.field)
        _tell(BadLine(self._file, self._lines.line_of(one.number), error))


def _tell(bad: BadLine) -> None:
    print(f"{bad.file}:{bad.line}: {bad.error}", file=sys.stderr)
