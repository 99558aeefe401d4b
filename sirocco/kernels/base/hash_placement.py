"""Places keys in hash tables by a secret of the process, so that clients cannot choose the place.

Clients choose keys: words, ids, sessions, cells. A client that knows how a table hashes finds keys
that all collide, and each look-up becomes a linear scan (Crosby, Wallach 2003). So two random words
drawn at the start of the process decide the places. Nothing that leaves the process depends on
them: logs, archives and answers hold keys, never places, and keys read out of a table are sorted.

The hash is two folded products of 64 × 64 bits, as in wyhash: the first spreads the differences of
chosen keys over the word in a way that depends on the secret, the second removes what is still
linear. One multiplication, even by a secret factor, would keep arithmetic progressions regular.
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
    """Returns the secret for a new table, which keeps it for its whole life."""
    return _of_process[0]


@contextmanager
def fixed_secret(first: int, second: int) -> Iterator[None]:
    """Gives tables created while the context is open a known secret; for tests only."""
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
