"""How the user runs the tool from here, so that a hint is a command that works."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

_NAME = "sirocco"


def program() -> str:
    """Returns what to type for the tool: its name, its path, or the interpreter with the module."""
    started = Path(sys.argv[0])
    if started.name == _NAME and started.is_file():
        found = shutil.which(_NAME)
        if found is not None and Path(found).resolve() == started.resolve():
            return _NAME
        return shlex.quote(_short(started))
    beside = Path(sys.executable).with_name(_NAME)
    if beside.is_file():
        return shlex.quote(_short(beside))
    return f"{shlex.quote(_short(Path(sys.executable)))} -m sirocco.cli"


def _short(path: Path) -> str:
    """A path from here, where that is the shorter one."""
    whole = str(path.absolute())
    near = os.path.relpath(whole)
    return near if len(near) < len(whole) and not near.startswith("..") else whole
