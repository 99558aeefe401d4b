"""Results that appear as a whole or not at all.

A killed job leaves hidden files beside its output path, which the next run of the same job removes;
a reader of the path sees the old result, or none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from sirocco.model.errors import InvalidArgument
from sirocco_spark.session import java_of

_MARK = ".unfinished-"


def write_whole(path: Path, data: bytes) -> None:
    """Writes a local file so that a job killed in the middle leaves the old file or none."""
    unfinished = path.with_name(f".{path.name}{_MARK}{os.getpid()}")
    with unfinished.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    for stale in path.parent.glob(f".{path.name}{_MARK}*"):
        if not _runs(int(stale.name.rpartition("-")[2])):
            stale.unlink(missing_ok=True)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


@contextmanager
def whole_directory(session: SparkSession, out: str) -> Iterator[str]:
    """Returns a directory to write to, which is renamed to `out` when everything is written.

    Works wherever Hadoop's file systems do; in object stores that rename file by file, wait for
    the file `_SUCCESS` or the summary.

    Raises:
        InvalidArgument: There is something at `out` already.
    """
    jvm = java_of(session)
    path = jvm.org.apache.hadoop.fs.Path(out)
    files = path.getFileSystem(session.sparkContext._jsc.hadoopConfiguration())
    if files.exists(path):
        raise InvalidArgument(f"there is {out} already: name another place", field="out")
    aside = jvm.org.apache.hadoop.fs.Path(path.getParent(), f".{path.getName()}{_MARK}job")
    files.delete(aside, True)
    files.mkdirs(aside)
    try:
        yield aside.toString()
        if not files.rename(aside, path):
            raise OSError(f"cannot rename {aside.toString()} to {out}")
    finally:
        files.delete(aside, True)


def write_text(session: SparkSession, path: str, text: str) -> None:
    """Writes a small file wherever Hadoop's file systems do."""
    jvm = java_of(session)
    target = jvm.org.apache.hadoop.fs.Path(path)
    files = target.getFileSystem(session.sparkContext._jsc.hadoopConfiguration())
    stream = files.create(target, True)
    try:
        stream.write(bytearray(text.encode()))
    finally:
        stream.close()
