"""The archive: immutable named blobs, on a disk, in an object store, or in memory.

A name is a relative path with slashes. A blob is there as a whole or not at all, and never changes:
writing the same contents to a name again succeeds, other contents are an error.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

from pyarrow import fs

from sirocco.transport.errors import BlobExists, BlobNotFound, TransportUnavailable

_PARTIAL_SUFFIX: Final = ".partial"

# Longer than any blob takes to write, and than the clocks of a shared volume differ.
_LEFT_S: Final = 86_400.0


class Archive(Protocol):
    """A set of blobs. Thread-safe.

    All calls raise `ValueError` for a name that is not a plain relative path, and
    `TransportUnavailable` when the store fails.
    """

    def write(self, name: str, *contents: bytes | memoryview) -> None:
        """Makes a blob durable; its contents may be given in pieces.

        Raises:
            BlobExists: the name is taken by other contents.
        """

    def read(self, name: str) -> bytes:
        """Returns the contents of a blob.

        Raises:
            BlobNotFound: there is none.
        """

    def list(self, prefix: str) -> list[str]:
        """Returns the names that begin with `prefix`, ascending."""

    def delete(self, name: str) -> None:
        """Removes a blob, if there is one."""


def folder_of(uri: str, name: str) -> str:
    """Returns the address of a folder of an archive; options of a URI stay after its path."""
    parts = urlsplit(uri)
    if not parts.scheme:
        return f"{uri.rstrip('/')}/{name}"
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{name}"))


def open_archive(uri: str) -> Archive:
    """Returns the archive at a URI.

    Args:
        uri: an absolute path or file://, s3://BUCKET/PATH or gs://BUCKET/PATH (credentials as the
            cloud's tools find them, options as pyarrow's `FileSystem.from_uri`), or memory:// for a
            new one that ends with the process.

    Raises:
        ValueError: not such a URI.
        TransportUnavailable: the store cannot be reached.
    """
    parts = urlsplit(uri)
    if parts.scheme == "memory":
        return MemoryArchive()
    if parts.scheme in ("", "file"):
        path = Path(unquote(parts.path)) if parts.scheme else Path(uri)
        if not path.is_absolute():
            raise ValueError(f"archive: {uri!r} is not an absolute path or a URI")
        return LocalArchive(path)
    try:
        filesystem, root = fs.FileSystem.from_uri(uri)
    except OSError as error:
        raise TransportUnavailable(f"archive {parts.scheme}://{parts.hostname}: {error}") from error
    except (ValueError, NotImplementedError) as error:
        # The error is reported without the address, which may hold a password.
        reason = str(error).replace(uri, f"{parts.scheme}://…")
        raise ValueError(f"archive: {reason}") from None
    return ObjectStoreArchive(filesystem, root)


class MemoryArchive:
    """`Archive` in a dict."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blobs: dict[str, bytes] = {}

    @property
    def bytes_total(self) -> int:
        """Sum of all contents, bytes."""
        with self._lock:
            return sum(len(contents) for contents in self._blobs.values())

    def write(self, name: str, *contents: bytes | memoryview) -> None:
        """See `Archive.write`."""
        _check(name)
        whole = b"".join(contents)
        with self._lock:
            if self._blobs.setdefault(name, whole) != whole:
                raise BlobExists(name)

    def read(self, name: str) -> bytes:
        """See `Archive.read`."""
        _check(name)
        with self._lock:
            found = self._blobs.get(name)
        if found is None:
            raise BlobNotFound(name)
        return found

    def list(self, prefix: str) -> list[str]:
        """See `Archive.list`."""
        with self._lock:
            return sorted(name for name in self._blobs if name.startswith(prefix))

    def delete(self, name: str) -> None:
        """See `Archive.delete`."""
        _check(name)
        with self._lock:
            self._blobs.pop(name, None)


class LocalArchive:
    """`Archive` in a directory of a local file system.

    A blob is written to a temporary file, forced to disk, and linked to its name: a crash leaves at
    most a file that nobody lists, and of two writers at once one wins. The directory may be shared
    by processes of several machines.

    Args:
        root: the directory; made if missing.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._aside = root / _PARTIAL_SUFFIX
        with _typed("archive"):
            self._aside.mkdir(parents=True, exist_ok=True)
            self._clear_aside()

    def write(self, name: str, *contents: bytes | memoryview) -> None:
        """See `Archive.write`."""
        path = self._path(name)
        # Not the process's number: in a container that is always 1, in the next one too.
        aside = self._aside / uuid.uuid4().hex
        with _typed(name):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with aside.open("xb") as file:
                    file.writelines(contents)
                    file.flush()
                    os.fsync(file.fileno())
                try:
                    os.link(aside, path)
                except FileExistsError:
                    if path.read_bytes() != b"".join(contents):
                        raise BlobExists(name) from None
            finally:
                aside.unlink(missing_ok=True)
            _sync_directories(path.parent, self._root)

    def read(self, name: str) -> bytes:
        """See `Archive.read`."""
        with _typed(name):
            try:
                return self._path(name).read_bytes()
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                raise BlobNotFound(name) from None

    def list(self, prefix: str) -> list[str]:
        """See `Archive.list`."""
        # Only searches the directory that the prefix names.
        folder = self._root / prefix.rpartition("/")[0]
        with _typed(prefix):
            found = [
                path.relative_to(self._root).as_posix()
                for path in folder.rglob("*")
                if path.is_file() and path.parent != self._aside
            ]
        return sorted(name for name in found if name.startswith(prefix))

    def delete(self, name: str) -> None:
        """See `Archive.delete`."""
        path = self._path(name)
        with _typed(name):
            try:
                path.unlink()
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                return
            _sync_directories(path.parent, path.parent)

    def _clear_aside(self) -> None:
        """Removes files of crashed writers: their names are not used again, and they take space."""
        for left in self._aside.iterdir():
            # Another process may have been faster.
            with suppress(FileNotFoundError):
                if left.stat().st_mtime < time.time() - _LEFT_S:
                    left.unlink()

    def _path(self, name: str) -> Path:
        _check(name)
        return self._root / name


class ObjectStoreArchive:
    """`Archive` in an object store, where an upload becomes visible as a whole at its end.

    This interface has no "create only", so of two writers at once with different contents the last
    would win; names hold the epoch of their only writer.

    Args:
        filesystem: of pyarrow.
        root: the path before every name.
    """

    def __init__(self, filesystem: fs.FileSystem, root: str) -> None:
        self._filesystem = filesystem
        self._root = root.rstrip("/")

    def write(self, name: str, *contents: bytes | memoryview) -> None:
        """See `Archive.write`."""
        path = self._path(name)
        with _typed(name):
            if self._filesystem.get_file_info(path).type == fs.FileType.File:
                if self.read(name) != b"".join(contents):
                    raise BlobExists(name)
                return
            self._filesystem.create_dir(path.rpartition("/")[0], recursive=True)
            with self._filesystem.open_output_stream(path, compression=None) as stream:
                for piece in contents:
                    stream.write(piece)

    def read(self, name: str) -> bytes:
        """See `Archive.read`."""
        path = self._path(name)
        with _typed(name):
            if self._filesystem.get_file_info(path).type != fs.FileType.File:
                raise BlobNotFound(name)
            with self._filesystem.open_input_stream(path, compression=None) as stream:
                contents: bytes = stream.read()
                return contents

    def list(self, prefix: str) -> list[str]:
        """See `Archive.list`."""
        with _typed(prefix):
            # Only the part up to the last slash can be asked for.
            folder = f"{self._root}/{prefix.rpartition('/')[0]}".rstrip("/")
            wanted = fs.FileSelector(folder, recursive=True, allow_not_found=True)
            paths = [
                info.path
                for info in self._filesystem.get_file_info(wanted)
                if info.type == fs.FileType.File
            ]
        names = [path.removeprefix(f"{self._root}/") for path in paths]
        return sorted(name for name in names if name.startswith(prefix))

    def delete(self, name: str) -> None:
        """See `Archive.delete`."""
        path = self._path(name)
        with _typed(name):
            if self._filesystem.get_file_info(path).type == fs.FileType.File:
                self._filesystem.delete_file(path)

    def _path(self, name: str) -> str:
        _check(name)
        return f"{self._root}/{name}"


def _check(name: str) -> None:
    """Refuses names that lead out of the archive, or differ from store to store."""
    parts = name.split("/")
    if any(part in ("", ".", "..") or part.endswith(_PARTIAL_SUFFIX) for part in parts) or (
        "\0" in name
    ):
        raise ValueError(f"archive: {name!r} is no plain relative path")


@contextmanager
def _typed(what: str) -> Iterator[None]:
    """Turns every error of the system or the store into `TransportUnavailable`."""
    try:
        yield
    except OSError as error:
        raise TransportUnavailable(f"archive {what}: {error}") from error


def _sync_directories(first: Path, last: Path) -> None:
    """Forces the entries of `first` and of its parents up to `last` to disk."""
    for directory in (first, *first.parents):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        if directory == last:
            return
