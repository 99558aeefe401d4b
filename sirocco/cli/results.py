"""The lines of OUT, one JSON object each: matches and errors."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson


class ResultsFile:
    """Writes results, from several threads if need be.

    Lines of matches are put together from pieces that are encoded once.

    Args:
        path: Overwritten.

    Raises:
        OSError: The file cannot be written.
    """

    def __init__(self, path: Path) -> None:
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
        self._out.close()

    def write(self, members: dict[str, Any]) -> None:
        """Writes one line."""
        with self._lock:
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
        heads = [b'{"query":%s,"object":' % orjson.dumps(one) for one in query_ids]
        tails = [b"%s}\n" % orjson.dumps(one) for one in object_ids]
        pairs = zip(query_rows, object_rows, strict=True)
        lines = b"".join([heads[q] + tails[o] for q, o in pairs])
        with self._lock:
            self._out.write(lines)
            # A batch at a time: whoever watches the file sees matches as they come.
            self._out.flush()
