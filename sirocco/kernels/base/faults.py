"""Turns a kernel's failure into an exception.

A kernel raises nothing: it returns −1 before it would write outside an array, and changes nothing.
The caller enlarges the array and calls again, or passes the result to `required`, which raises.
"""

from __future__ import annotations

from typing import Any

__all__ = ["KernelError", "required"]


class KernelError(RuntimeError):
    """A structure is not in the state that its kernels need: our defect, never caused by input."""


def required(result: Any, what: str) -> int:
    """Returns the result of a kernel that must succeed.

    Args:
        result: of the kernel, below 0 where it failed.
        what: the kernel and what it lacked, for the reader of the log.

    Raises:
        KernelError: It failed.
    """
    if result < 0:
        raise KernelError(what)
    return int(result)
