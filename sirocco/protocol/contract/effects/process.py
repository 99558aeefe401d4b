"""What concerns a process as a whole: time, slow jobs, flushing and its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Computed:
    """The answer to `Compute`."""

    key: tuple[str, int, int]
    result: Any


@dataclass(frozen=True, slots=True)
class FlushRequest:
    """A flush request: report the positions of the sources at once; a caller waits for them."""


@dataclass(frozen=True, slots=True)
class Draining:
    """The process was asked to end: save checkpoints."""


@dataclass(frozen=True, slots=True)
class Compute:
    """Run a pure but slow job outside the loop; answered by `Computed` with the result."""

    key: tuple[str, int, int]
    job: Callable[[], Any]
