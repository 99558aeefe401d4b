"""Compares runs of tokens' numbers, many at a time.

With SIROCCO_JIT=0 it is a plain function with the same result.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sirocco.kernels.jit.compiled import JIT_ENABLED

__all__ = ["are_equal_runs"]

_WORD_BYTES = 8


def _are_equal_runs(left: Any, at: Any, right: Any, begin: Any, count: Any) -> bool:
    """Returns whether left[at : at + count] equals right[begin : begin + count] (u8, C order)."""
    return bool(np.array_equal(left[at : at + count], right[begin : begin + count]))


def _native() -> Any:
    """Builds the native form: the C library's `memcmp`."""
    from llvmlite import ir  # noqa: PLC0415 - only where kernels are compiled
    from numba.core import cgutils, types  # noqa: PLC0415
    from numba.extending import intrinsic  # noqa: PLC0415

    byte, size = ir.IntType(8).as_pointer(), ir.IntType(64)
    memcmp_type = ir.FunctionType(ir.IntType(32), [byte, byte, size])

    def bytes_at(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
        data = context.make_array(array_type)(context, builder, array).data
        return builder.bitcast(builder.gep(data, [index]), byte)

    @intrinsic
    def are_equal_runs(typing_context, left, at, right, begin, count):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
            one = bytes_at(context, builder, signature.args[0], args[0], args[1])
            other = bytes_at(context, builder, signature.args[2], args[2], args[3])
            memcmp = cgutils.get_or_insert_function(builder.module, memcmp_type, "memcmp")
            length = builder.mul(args[4], ir.Constant(size, _WORD_BYTES))
            order = builder.call(memcmp, [one, other, length])
            return builder.icmp_signed("==", order, ir.Constant(ir.IntType(32), 0))

        i8 = types.int64
        return types.boolean(left, i8, right, i8, i8), generate

    return are_equal_runs


are_equal_runs: Any = _native() if JIT_ENABLED else _are_equal_runs
