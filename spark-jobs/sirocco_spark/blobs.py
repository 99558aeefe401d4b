"""Opens archives for jobs that only read them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from sirocco.model.errors import InvalidArgument, Unavailable
from sirocco.transport.archive import open_archive
from sirocco.transport.errors import BlobNotFound


class Blobs(Protocol):
    """The part of an archive's interface that reading needs."""

    def read(self, name: str) -> bytes:
        """Returns the contents of a blob; raises BlobNotFound."""

    def list(self, prefix: str) -> list[str]:
        """Returns the names with a prefix, ascending."""


class Directory:
    """A local archive that is only read: it creates nothing, not even directories for writers."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, name: str) -> bytes:
        """See `Blobs.read`."""
        try:
            return (self._root / name).read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise BlobNotFound(name) from None
        except OSError as error:
            raise Unavailable(f"archive {name}: {error}") from error

    def list(self, prefix: str) -> list[str]:
        """See `Blobs.list`."""
        below = self._root / prefix.rpartition("/")[0]
        names = (p.relative_to(self._root).as_posix() for p in below.rglob("*") if p.is_file())
        return sorted(name for name in names if name.startswith(prefix))


def place_of(uri: str) -> str:
    """Returns the place of an archive, equal for all forms of its URI: two are one if it is equal.

    Args:
        uri: a path, relative or not, or a URI; options and credentials do not count.
    """
    parts = urlsplit(uri)
    if parts.scheme in ("", "file"):
        return str(_path_of(uri).resolve())
    # Hadoop's name of the same store.
    scheme = "s3" if parts.scheme == "s3a" else parts.scheme
    return f"{scheme}://{parts.netloc.rpartition('@')[2]}/{parts.path.strip('/')}"


def _path_of(uri: str) -> Path:
    parts = urlsplit(uri)
    return Path(unquote(parts.path) if parts.scheme else uri)


def open_blobs(uri: str) -> Blobs:
    """Opens an archive for reading.

    Raises:
        InvalidArgument: There is no such directory, or the URI is invalid.
        Unavailable: The store cannot be reached.
    """
    parts = urlsplit(uri)
    if parts.scheme in ("", "file"):
        path = _path_of(uri)
        if not path.is_dir():
            raise InvalidArgument(f"there is no directory {path}", field="archive")
        return Directory(path)
    try:
        # Hadoop's name of the same store.
        return open_archive(uri.replace("s3a://", "s3://", 1))
    except ValueError as error:
        raise InvalidArgument(str(error), field="archive") from None
