"""What a kernel says when it cannot do what was asked, and how nobody can miss it.

A kernel has no exceptions: it answers −1 before it writes outside of an array, and leaves all as it
was. Whoever calls it makes room and asks again, or lets `required` end the call.
"""

from __future__ import annotations

from typing import Any

__all__ = ["KernelError", "required"]


class KernelError(RuntimeError):
    """A structure is not as its kernels need it: a defect of ours, never the fault of input."""


def required(result: Any, what: str) -> int:
    """Returns the result of a kernel that had to succeed.

    Args:
        result: of the kernel, below 0 where it failed.
        what: the kernel and what it missed, for whoever reads the log.

    Raises:
        KernelError: It failed.
    """
    if result < 0:
        raise KernelError(what)
    return int(result)
