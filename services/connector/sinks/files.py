"""The sink into files: a part that grows, and finished files that do not change.

Exactly once: a part is made durable before the state, which names its length. After a crash the
part is cut to that length. A part whose number is below the state's is finished: it gets its final
name, or becomes a Parquet file, as often as that takes.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from types import UnionType
from typing import Any, BinaryIO, Literal

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from sirocco.services.connector.sinks.blocks import Block
from sirocco.services.connector.sinks.errors import SinkStopped, TargetUnavailable
from sirocco.services.connector.sinks.sink import Counts
from sirocco.services.connector.sinks.state import Saved
from sirocco.services.connector.sinks.state_file import StateFile, sync_folder

# Lines that become one row group of a Parquet file.
_GROUP_ROWS = 20_000

_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("query", pa.string()),
        ("event", pa.string()),
        ("object", pa.string()),
        ("lon", pa.float64()),
        ("lat", pa.float64()),
        ("ts", pa.timestamp("ms", "UTC")),
        ("text", pa.string()),
        # The whole notification.
        ("data", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSettings:
    """How files are written.

    Attributes:
        folder: Where they are.
        form: Of finished files.
        is_packed: Whether lines are packed by gzip.
        file_bytes: Of a finished file; it is finished after the block that reaches them.
        file_s: Age at which a file with rows is finished.
    """

    folder: Path
    form: Literal["ndjson", "parquet"] = "ndjson"
    is_packed: bool = False
    file_bytes: int = 128 << 20
    file_s: float = 3_600.0


class FileTarget:
    """See `sink.Target`. Its work is done in a thread.

    Args:
        settings: how files are written.
        name: of the sink, and of its files.
        counts: its metrics.
    """

    blocks_max = 1

    def __init__(self, settings: FileSettings, name: str, counts: Counts) -> None:
        self._settings = settings
        self._name = name
        self._counts = counts
        self._state = StateFile(settings.folder, name)
        self._part = Part(settings, name)

    async def open(self) -> Saved | None:
        """See `Target`."""
        saved = await self._state.open()
        await asyncio.to_thread(self._part.recover, {} if saved is None else saved.target)
        return saved

    async def write(self, blocks: Sequence[Block]) -> None:
        """See `Target`."""
        for block in blocks:
            await asyncio.to_thread(self._write, block)
            self._counts.delivered.inc(len(block.rows))

    def _write(self, block: Block) -> None:
        part = self._part
        part.append(b"".join([row.value + b"\n" for row in block.rows]))
        is_full = part.is_full(time.time())
        # From here on the rows count; what was finished before them is named by its number alone.
        self._state.write(replace(block.saved, target=part.after(is_full)))
        if is_full:
            part.finish()

    def stop(self) -> None:
        """See `Target`: a write takes a moment anyway."""

    async def is_free(self) -> bool:
        """See `Target`."""
        return await self._state.is_free()

    async def close(self) -> None:
        """See `Target`."""
        self._part.close()
        await self._state.close()


class Part:
    """The file that grows.

    Args:
        settings: how files are written.
        name: of the sink.
    """

    def __init__(self, settings: FileSettings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._number = 0
        self._bytes = 0
        self._begin_s = 0.0
        self._file: BinaryIO | None = None

    def recover(self, target: Any) -> None:
        """Makes the folder agree with the state.

        Raises:
            TargetUnavailable: The file system fails, or lacks what the state names.
            SinkStopped: The state names no part.
        """
        self.close()
        self._number = _counted(target, "number", self._name)
        self._bytes = _counted(target, "bytes", self._name)
        self._begin_s = _counted(target, "begin_s", self._name, int | float)
        try:
            for number, path in self._parts():
                if number < self._number:
                    self._finish(number, path)
                elif number > self._number:
                    path.unlink()
            self._cut()
        except OSError as error:
            raise _unavailable(error) from error

    def _parts(self) -> Iterator[tuple[int, Path]]:
        named = re.compile(rf"{re.escape(self._name)}-([0-9]{{12}})\.part")
        for path in sorted(self._settings.folder.iterdir()):
            found = named.fullmatch(path.name)
            if found is not None:
                yield int(found[1]), path

    def _cut(self) -> None:
        path = self._path(self._number, "part")
        if not path.exists() and not self._bytes:
            return
        with path.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            if size < self._bytes:
                raise TargetUnavailable(
                    "files", f"{path} has {size} bytes, of {self._bytes} that were written"
                )
            file.truncate(self._bytes)
            os.fsync(file.fileno())

    def append(self, data: bytes) -> None:
        """Adds lines to the part; durable when this returns.

        Raises:
            TargetUnavailable: The file system fails.
        """
        if not data:
            return
        if self._settings.is_packed and self._settings.form == "ndjson":
            # A member of its own: the part can be cut after any of them.
            data = gzip.compress(data, 6, mtime=0)
        try:
            if self._file is None:
                self._file = self._path(self._number, "part").open("ab")
                sync_folder(self._settings.folder)
            if not self._bytes:
                self._begin_s = time.time()
            self._file.write(data)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise _unavailable(error) from error
        self._bytes += len(data)

    def is_full(self, now_s: float) -> bool:
        """Whether the part is to be finished."""
        settings = self._settings
        is_old = abs(now_s - self._begin_s) >= settings.file_s
        return self._bytes > 0 and (self._bytes >= settings.file_bytes or is_old)

    def after(self, is_full: bool) -> dict[str, Any]:
        """Returns what the state names: the present part, or the next one."""
        if is_full:
            return {"number": self._number + 1, "bytes": 0, "begin_s": 0.0}
        return {"number": self._number, "bytes": self._bytes, "begin_s": self._begin_s}

    def finish(self) -> None:
        """Gives the part its final form and name, and begins the next one.

        Raises:
            TargetUnavailable: The file system fails.
        """
        self.close()
        number, self._number = self._number, self._number + 1
        self._bytes = 0
        try:
            self._finish(number, self._path(number, "part"))
        except OSError as error:
            raise _unavailable(error) from error

    def _finish(self, number: int, part: Path) -> None:
        folder = self._settings.folder
        if self._settings.form == "parquet":
            temporary = self._path(number, "new")
            write_parquet(part, temporary)
            temporary.rename(self._path(number, "parquet"))
            sync_folder(folder)
            part.unlink()
        else:
            part.rename(self._path(number, "ndjson.gz" if self._settings.is_packed else "ndjson"))
        sync_folder(folder)

    def _path(self, number: int, suffix: str) -> Path:
        return self._settings.folder / f"{self._name}-{number:012}.{suffix}"

    def close(self) -> None:
        """Closes the file; what is in it is durable already."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _counted(target: Any, name: str, sink: str, kind: type[Any] | UnionType = int) -> Any:
    value = target.get(name, 0)
    if not isinstance(value, kind) or not value >= 0:
        raise SinkStopped("refused", f"the state of {sink} cannot be read: {name} is {value!r:.80}")
    return value


def write_parquet(lines: Path, target: Path) -> None:
    """Writes the notifications of a file of lines as Parquet; durable when this returns."""
    with lines.open("rb") as source, target.open("wb") as sink:
        with pq.ParquetWriter(sink, _SCHEMA, compression="zstd") as writer:
            while group := list(islice(source, _GROUP_ROWS)):
                writer.write_batch(_group_of(group))
        sink.flush()
        os.fsync(sink.fileno())


def _group_of(lines: Sequence[bytes]) -> pa.RecordBatch:
    rows = []
    for line in lines:
        members = orjson.loads(line)
        # A CloudEvent holds the notification as its data.
        inner = members.get("data", members) if "specversion" in members else members
        one = inner.get("object") or {}
        rows.append(
            {
                "id": members.get("id"),
                "query": inner.get("query"),
                "event": inner.get("event"),
                "object": one.get("id"),
                "lon": one.get("lon"),
                "lat": one.get("lat"),
                "ts": one.get("ts"),
                "text": one.get("text"),
                "data": line.rstrip(b"\n").decode(),
            }
        )
    return pa.RecordBatch.from_pylist(rows, _SCHEMA)


def _unavailable(error: OSError) -> TargetUnavailable:
    return TargetUnavailable("files", f"{error.filename or 'a file'}: {error.strerror}")
