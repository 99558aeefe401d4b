"""The lines of OUT, one JSON object each: matches, lists, steps and errors."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from sirocco.cli.terminal.paths import naming


class ResultsFile:
    """Writes results, from several threads if need be.

    Lines of matches are assembled from parts that are encoded once. Ids of objects are numbers or
    strings, as they were published.

    Args:
        path: Overwritten.

    Raises:
        OSError: The file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._out = path.open("wb", buffering=1 << 20)
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with naming(self._path):
            self._out.close()

    def write(self, members: dict[str, Any]) -> None:
        """Writes one line."""
        with self._lock, naming(self._path):
            self._out.write(orjson.dumps(members) + b"\n")

    def write_matches(
        self,
        query_ids: Sequence[str],
        object_ids: Sequence[int | str],
        query_rows: Sequence[int],
        object_rows: Sequence[int],
    ) -> None:
        """Writes a line for each match.

        Args:
            query_ids: Ids of the queries concerned.
            object_ids: Ids of the objects concerned.
            query_rows: For each match the row of its query.
            object_rows: For each match the row of its object.
        """
        heads = _heads(query_ids)
        tails = [b"%s}\n" % orjson.dumps(one) for one in object_ids]
        pairs = zip(query_rows, object_rows, strict=True)
        self._write_batch(b"".join([heads[q] + tails[o] for q, o in pairs]))

    def write_events(
        self,
        query_ids: Sequence[str],
        object_ids: Sequence[int | str],
        query_rows: Sequence[int],
        object_rows: Sequence[int],
        events: Sequence[str | None],
        tracks: Sequence[Any],
    ) -> None:
        """Writes a line for each match, of queries that track a value or of others.

        Args:
            query_ids: Ids of the queries concerned.
            object_ids: Ids of the objects concerned.
            query_rows: For each match the row of its query.
            object_rows: For each match the row of its object.
            events: For each match `enter`, `inside` or `exit`; None if its query tracks nothing.
            tracks: For each match the object's value of the tracked attribute; None without one.
        """
        heads, ids = _heads(query_ids), [orjson.dumps(one) for one in object_ids]
        matches = zip(query_rows, object_rows, events, tracks, strict=True)
        self._write_batch(
            b"".join([heads[q] + ids[o] + _event(event, track) for q, o, event, track in matches])
        )

    def write_objects(self, query_id: str, objects: Sequence[int | str]) -> None:
        """Writes the answer of a range query: ids in their order."""
        self.write({"query": query_id, "objects": objects})

    def write_change(
        self,
        query_id: str,
        added: Sequence[int | str],
        removed: Sequence[int | str],
        objects: Sequence[int | str],
        distances_m: Sequence[float],
    ) -> None:
        """Writes a change of a standing knn query's list, and the list after it."""
        self.write(
            {
                "query": query_id,
                "added": added,
                "removed": removed,
                "objects": objects,
                "distance_m": distances_m,
            }
        )

    def write_terms(
        self, query_id: str, terms: Sequence[str], counts: Sequence[int], at_ms: int
    ) -> None:
        """Writes the most frequent terms at a step, or at the time of a snapshot (epoch ms)."""
        pairs = list(zip(terms, counts, strict=True))
        self.write({"query": query_id, "terms": pairs, "at": at_ms})

    def write_ranked(
        self,
        query_id: str,
        objects: Sequence[int | str],
        scores: Sequence[float],
        at_ms: int | None = None,
    ) -> None:
        """Writes a ranked list, the best first; `at_ms` is the step of a standing query."""
        line = {"query": query_id, "objects": objects, "score": scores}
        self.write(line if at_ms is None else line | {"at": at_ms})

    def write_end(self, query_id: str, reason: str) -> None:
        """Writes that a query has ended: its last line."""
        self.write({"query": query_id, "event": "ended", "reason": reason})

    def flush(self) -> None:
        """Makes all written lines visible to readers of the file."""
        with self._lock, naming(self._path):
            self._out.flush()

    def _write_batch(self, lines: bytes) -> None:
        with self._lock, naming(self._path):
            self._out.write(lines)
            # One batch at a time: readers of the file see matches as they arrive.
            self._out.flush()


def _heads(query_ids: Sequence[str]) -> list[bytes]:
    return [b'{"query":%s,"object":' % orjson.dumps(one) for one in query_ids]


def _event(event: str | None, track: Any) -> bytes:
    """Returns the rest of a line after the object's id."""
    if event is None:
        return b"}\n"
    return b',"event":%s,"track":%s}\n' % (orjson.dumps(event), orjson.dumps(track))
