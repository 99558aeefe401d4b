"""One replay against a running cluster: register, publish, wait until processed, search."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from sirocco_api.v1.columns_pb2 import ObjectColumns as ObjectsMessage
from sirocco_client import (
    Client,
    DeadlineExceeded,
    Ended,
    KnnChange,
    ListChange,
    NotificationBatch,
    Publisher,
    PublishFlow,
    Rejected,
    TermsStep,
    query_from_json,
)
from sirocco_client import SiroccoError as SdkError

from sirocco.cli.files.object_format import read_by_options
from sirocco.cli.files.object_lines import ObjectLines
from sirocco.cli.files.query_file import QueryLine, read_queries
from sirocco.cli.replay.arrivals import Arrivals
from sirocco.cli.replay.results import ResultsFile
from sirocco.cli.terminal.bad_lines import BadLines
from sirocco.cli.terminal.progress import Bar
from sirocco.cli.terminal.terminal import note
from sirocco.codec.columns import put_objects
from sirocco.loadgen.latency import LatencyHistogram, SendTimes
from sirocco.loadgen.lines import BadLine, ReadBatch
from sirocco.loadgen.pace import Pace
from sirocco.loadgen.receiver import Receiver
from sirocco.model.errors import InvalidArgument
from sirocco.model.limits import DEFAULT_LIMITS
from sirocco.model.objects import MISSING_TS
from sirocco.runtime.process.clock import now_ms

SUBSCRIBER = "replay"

# Objects per request: many, since the whole file waits and records are the main cost.
_BATCH_ROWS = 4_096
_FLOW = PublishFlow(
    batch_objects=_BATCH_ROWS,
    outstanding_objects_max=16 * _BATCH_ROWS,
    outstanding_bytes_max=64 << 20,
)

# Warnings are shown in the order of the lines, as far as so many are held.
_WARNINGS_HELD_MAX = 10_000

# Updating the bar costs more than registering one query.
_BAR_ROWS = 1_000

# If there is no progress for this time, something is broken permanently: a killed evaluator is
# detected after its lease, and its slots load again from their checkpoints.
_STALL_S = 300.0

# By the clock, steps never end, so that progress proves nothing.
_STALLS_MAX = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFiles:
    """Input of a replay.

    Attributes:
        objects: Objects.
        queries: Lines of queries, or None.
        event_arrivals: Arrivals follow the objects' own times.
        objects_per_s: Rate of publishing; None: as fast as they are accepted.
        skew_max_ms: How far those times may be ahead of the clock; None: no bounds.
        form: Format of the objects; None: by the file's name, or how it begins.
        columns: Columns of a table, as in the option --map.
    """

    objects: Path
    queries: Path | None
    event_arrivals: bool = False
    objects_per_s: float | None = None
    skew_max_ms: int | None = None
    form: str | None = None
    columns: str | None = None


class Replay:
    """The state of one replay.

    Args:
        client: Client of the cluster.
        files: The input.
        out: Receives the results.
        bar: Shows the progress.
    """

    def __init__(self, client: Client, files: ReplayFiles, out: ResultsFile, bar: Bar) -> None:
        self.bad_lines = 0
        self._client = client
        self._files = files
        self._out = out
        self._bar = bar
        self._sent = SendTimes()
        self._lines = ObjectLines()
        self._arrivals = Arrivals(files.skew_max_ms)
        self._queries = 0
        self._snapshots: list[QueryLine] = []
        self._newest_ms = MISSING_TS
        # By the clock: arrival of the last object.
        self._ended_ms = DEFAULT_LIMITS.ts_ms
        self._token = ""
        self._searches = LatencyHistogram()
        self._rejected: list[Rejected] = []
        self._warned = BadLines(str(files.queries))

    def run(self) -> dict[str, Any]:
        """Replays the files; returns the figures for the summary.

        Raises:
            SiroccoError: The cluster cannot be reached, or refuses valid input.
            OSError: A file cannot be read or written.
        """
        batches = self._good_objects()
        first = next(batches, None)
        begin_s = time.monotonic()
        self._register(_start_ms(first) if self._files.event_arrivals else None)
        registered_s = time.monotonic()
        receiver = Receiver(
            self._client.subscribe(SUBSCRIBER, from_earliest=True, credit=1_000_000),
            self._sent,
            self._write,
        )
        receiver.start()
        try:
            with self._client.publisher(_FLOW, on_rejected=self._rejected.append) as publisher:
                self._publish(publisher, chain([] if first is None else [first], batches))
                self._bar.begin("waiting for notifications")
                publisher.flush()
                self._ended_ms = now_ms()
                self._token = await_processed(self._client, publisher, receiver)
                self._end_time(receiver)
            done_s = time.monotonic()
            self._search()
        finally:
            receiver.stop()
            self._warned.finish()
        self._report_rejected()
        seconds = done_s - registered_s
        objects = self._lines.count - len(self._rejected)
        return {
            "objects": objects,
            "queries": self._queries,
            "notifications": receiver.notifications,
            "searches": len(self._snapshots),
            "bad_lines": self.bad_lines,
            "registration_seconds": round(registered_s - begin_s, 3),
            "seconds": round(seconds, 3),
            "objects_per_s": round(objects / seconds, 1) if seconds else 0.0,
            "latency_ms": receiver.latency.summary_ms(),
            "search_latency_ms": self._searches.summary_ms(),
        }

    # --- queries

    def _register(self, start_ms: int | None) -> None:
        """Registers the continuous queries; returns when all are acknowledged."""
        if self._files.queries is None:
            return
        self._bar.begin("registering queries")
        name = str(self._files.queries)
        under_way: list[int] = []
        results = self._client.register_many(self._sdk_queries(name, under_way), start_ms=start_ms)
        for row, result in enumerate(results):
            if result.error is None:
                self._queries += 1
                self._warn(under_way[row], result.warnings)
            else:
                error = InvalidArgument(result.error.message, field=result.error.field)
                self._report(BadLine(name, under_way[row], error))
            if (row + 1) % _BAR_ROWS == 0:
                self._bar.advance(_BAR_ROWS)

    def _sdk_queries(self, name: str, under_way: list[int]) -> Iterator[Any]:
        assert self._files.queries is not None
        for line in read_queries(self._files.queries, name):
            if not isinstance(line, QueryLine):
                self._report(line)
            elif line.is_standing:
                under_way.append(line.line)
                self._arrivals.expect(line.query)
                yield query_from_json(line.members, SUBSCRIBER)
            else:
                self._snapshots.append(line)

    def _end_time(self, receiver: Receiver) -> None:
        """Reports the end of the stream, so that steps at the newest arrival are evaluated."""
        if not self._token:
            return
        end_ms = self._newest_ms + 1 if self._files.event_arrivals else self._ended_ms
        self._token = self._client.advance_time(min(end_ms, DEFAULT_LIMITS.ts_ms))
        _await_token(self._client, self._token, receiver)

    def _search(self) -> None:
        """Runs the snapshot queries, now that everything has arrived."""
        self._bar.begin("searching")
        # Without objects any time is valid.
        newest_ms = 0 if self._newest_ms == MISSING_TS else self._newest_ms
        asked_ms = newest_ms if self._files.event_arrivals else None
        for line in self._snapshots:
            self._queries += 1
            asked_s = time.monotonic()
            try:
                answer = self._client.search(
                    query_from_json(line.members, SUBSCRIBER),
                    now_ms=asked_ms,
                    position_token=self._token,
                    timeout_s=_STALL_S,
                )
            except SdkError as error:
                wrong = InvalidArgument(error.message, field=error.field)
                self._report(BadLine(str(self._files.queries), line.line, wrong))
                continue
            self._searches.add(np.array([(time.monotonic() - asked_s) * 1_000]))
            self._out.write(answer.members())
            self._warn(line.line, answer.warnings)
            self._bar.advance(1)

    # --- objects

    def _good_objects(self) -> Iterator[ReadBatch]:
        """Yields the file in batches of valid lines; reports the others."""
        name = str(self._files.objects)
        pace = Pace(self._files.objects_per_s)
        has_started = not self._files.event_arrivals
        rows = pace.batch_rows(_BATCH_ROWS)
        form, columns = self._files.form, self._files.columns
        for batch in read_by_options(self._files.objects, name, rows, form, columns):
            for bad in batch.bad:
                self._report(bad)
            found = batch
            if self._files.event_arrivals:
                far = self._arrivals.too_far(batch.objects.ts, now_ms())
                found = self._without(batch, far)
            if not has_started:
                found = self._from_first_time(found, name)
                has_started = len(found.lines) > 0
            if len(found.lines):
                yield found

    def _from_first_time(self, batch: ReadBatch, name: str) -> ReadBatch:
        """Refuses the objects before the first one with a time: their arrival is unknown."""
        timed = np.flatnonzero(batch.objects.ts != MISSING_TS)
        start = int(timed[0]) if len(timed) else len(batch.lines)
        for line in batch.lines[:start].tolist():
            error = InvalidArgument(
                "is missing in the first object, and arrivals follow the objects' times",
                field="ts",
            )
            self._report(BadLine(name, line, error))
        rest = batch.objects.slice(start, len(batch.lines))
        return replace(batch, objects=rest, lines=batch.lines[start:])

    def _without(
        self, batch: ReadBatch, refused: Iterable[tuple[int, InvalidArgument]]
    ) -> ReadBatch:
        """Reports the refused rows of a batch; returns the others."""
        rows = []
        for row, error in refused:
            self._report(BadLine(str(self._files.objects), int(batch.lines[row]), error))
            rows.append(row)
        if not rows:
            return batch
        kept = np.delete(np.arange(len(batch.lines)), rows)
        return replace(batch, objects=batch.objects.take(kept), lines=batch.lines[kept])

    def _publish(self, publisher: Publisher, batches: Iterable[ReadBatch]) -> None:
        self._bar.begin("publishing objects")
        pace = Pace(self._files.objects_per_s)
        for read in batches:
            batch = read
            if self._files.event_arrivals:
                batch = self._without(batch, self._arrivals.jumps(batch.objects.ts))
            if not len(batch.lines):
                continue
            pace.wait(len(batch.lines))
            message = ObjectsMessage()
            put_objects(message, batch.objects)
            # Before the call: waiting for room in the publisher is part of the latency.
            self._sent.add(self._lines.add(batch.lines), time.monotonic())
            self._newest_ms = max(self._newest_ms, int(batch.objects.ts.max()))
            publisher.publish_columns(message)
            self._bar.advance(len(batch.lines))

    # --- results

    @property
    def _last_step_ms(self) -> int:
        """Time of the last awaited step; by the clock, later steps would never end."""
        return self._newest_ms if self._files.event_arrivals else self._ended_ms

    def _write(self, batch: NotificationBatch) -> None:
        pairs = batch.match_queries.tolist(), batch.match_objects.tolist()
        changes = batch.match_changes
        if all(change == "match" for change in changes):
            self._out.write_matches(batch.query_ids, batch.object_ids, *pairs)
        else:
            events = [None if change == "match" else change for change in changes]
            self._out.write_events(
                batch.query_ids, batch.object_ids, *pairs, events, batch.match_tracks
            )
        for list_change in batch.lists:
            self._write_list(list_change)

    def _write_list(self, list_change: ListChange) -> None:
        if isinstance(list_change, Ended):
            self._out.write_end(list_change.query, list_change.reason)
            return
        if not isinstance(list_change, KnnChange) and list_change.at_ms > self._last_step_ms:
            return
        if isinstance(list_change, TermsStep):
            terms = [term for term, _ in list_change.terms]
            self._out.write_terms(
                list_change.query,
                terms,
                [count for _, count in list_change.terms],
                list_change.at_ms,
            )
            return
        objects = [one for one, _ in list_change.entries]
        figures = [figure for _, figure in list_change.entries]
        if isinstance(list_change, KnnChange):
            added = [one.id for one in list_change.added]
            self._out.write_change(list_change.query, added, list_change.removed, objects, figures)
        else:
            self._out.write_ranked(list_change.query, objects, figures, list_change.at_ms)

    def _report_rejected(self) -> None:
        name = str(self._files.objects)
        for rejected in self._rejected:
            error = InvalidArgument(rejected.error.message, field=rejected.error.field)
            self._report(BadLine(name, self._lines.line_of(rejected.number), error))

    def _warn(self, line: int, warnings: Iterable[str]) -> None:
        for each in warnings:
            self._warned.add(line, f"warning: {each}")
        if self._warned.waiting > _WARNINGS_HELD_MAX:
            self._warned.settle()

    def _report(self, bad: BadLine) -> None:
        self.bad_lines += 1
        self._out.write(bad.members())
        note(f"{bad.file}:{bad.line}: {bad.error}")


def await_processed(client: Client, publisher: Publisher, receiver: Receiver) -> str:
    """Waits until everything published is matched and every notification of it was received.

    Returns:
        The position token of the last object; empty if nothing was published.

    Raises:
        DeadlineExceeded, TimeoutError: There was no progress for minutes, or it took hours.
    """
    token = publisher.flush().position_token
    if token:
        _await_token(client, token, receiver)
    return token


def _await_token(client: Client, token: str, receiver: Receiver) -> None:
    taken = -1
    for _ in range(_STALLS_MAX):
        try:
            ends = client.await_processed(token, timeout_s=_STALL_S)
        except DeadlineExceeded:
            receiver.check()
            if receiver.notifications == taken:
                raise
            taken = receiver.notifications
            continue
        receiver.await_cursors(ends, _STALL_S)
        return
    raise TimeoutError(f"not processed within {_STALLS_MAX * _STALL_S:.0f} s")


def _start_ms(first: ReadBatch | None) -> int | None:
    return None if first is None else int(first.objects.ts[0])
