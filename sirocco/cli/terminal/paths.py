"""Reads every path and name on the command line, and names files that cannot be written.

An empty argument is what an unset variable of the shell leaves. It is refused: as a path it would
mean the working directory, as a name the default, and nobody would notice.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def filled(text: str) -> str:
    """Reads a text that must not be empty: a name, an address, a file or `-`."""
    if not text.strip():
        raise argparse.ArgumentTypeError("is empty")
    return text


def path(text: str) -> Path:
    """Reads a path."""
    return Path(filled(text))


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Adds the file's name to errors of the system: a full disk does not say what it holds."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(file)
        raise
