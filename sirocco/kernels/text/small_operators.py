"""Finds words of expressions that would be operators in capitals."""

from __future__ import annotations

from typing import Any

from numba import types

from sirocco.kernels.jit.compiled import kernel

__all__ = ["mark_small_operators"]

_U1_IN = types.Array(types.uint8, 1, "C", readonly=True)
_I8_IN = types.Array(types.int64, 1, "C", readonly=True)


@kernel(types.void(_U1_IN, _I8_IN, types.boolean[::1]))
def mark_small_operators(texts: Any, offsets: Any, marks: Any) -> None:
    """Marks the rows that have `and`, `or` or `not` as a word.

    Args:
        texts: u1[b], plain expressions: ASCII words with single spaces between them.
        offsets: i8[n + 1], where each begins.
        marks: bool[n], overwritten.
    """
    for row in range(marks.shape[0]):
        marks[row] = False
        begin, end = offsets[row], offsets[row + 1]
        for position in range(begin, end + 1):
            if position < end and texts[position] != 0x20:
                continue
            length = position - begin
            if length == 2:
                if texts[begin] == 0x6F and texts[begin + 1] == 0x72:
                    marks[row] = True
            elif length == 3:
                a, b, c = texts[begin], texts[begin + 1], texts[begin + 2]
                if (a == 0x61 and b == 0x6E and c == 0x64) or (
                    a == 0x6E and b == 0x6F and c == 0x74
                ):
                    marks[row] = True
            begin = position + 1
