"""Where a key stands in a hash table: by a secret of the process, so that nobody can choose it.

Clients choose keys: words, ids, sessions, cells. Whoever knows how a table hashes finds keys that
crowd one place, and each look-up becomes a walk (Crosby, Wallach 2003). Two words drawn at the
start of the process decide here. Nothing that leaves the process depends on them: logs, archives
and answers hold keys, never places, and what is read out of a table is put in order first.

The hash is two folded products of 64 × 64 bits, as in wyhash: the first spreads the differences of
chosen keys over the word in a way that the secret decides, the second breaks what is still linear
in them. A multiplication alone, by a secret factor too, would keep arithmetic progressions in step.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from sirocco.kernels.base.faults import KernelError
from sirocco.kernels.base.words import multiply_fold
from sirocco.kernels.jit.compiled import kernel

__all__ = ["Secret", "fixed_secret", "mix", "secret"]

Secret = tuple[np.uint64, np.uint64]
"""Two odd words."""


def _drawn() -> Secret:
    words = np.frombuffer(os.urandom(16), np.uint64) | np.uint64(1)
    return words[0], words[1]


_of_process = [_drawn()]


def secret() -> Secret:
    """Returns the secret for a table that is made now; it keeps it for as long as it lives."""
    return _of_process[0]


@contextmanager
def fixed_secret(first: int, second: int) -> Iterator[None]:
    """Gives tables that are made meanwhile a secret that is known: for tests alone."""
    if not (first & second & 1):
        raise KernelError("a secret is of odd words")
    before = _of_process[0]
    _of_process[0] = np.uint64(first), np.uint64(second)
    try:
        yield
    finally:
        _of_process[0] = before


@kernel(inline=True)
def mix(key: Any, first: Any, second: Any) -> Any:
    """Returns a u8 hash of a u8 key; all of its bits are good.

    Args:
        key: u8.
        first, second: u8, the secret.
    """
    return multiply_fold(multiply_fold(key ^ first, second) ^ second, first)
