"""Machine operations that Python lacks: prefetch, copies, trailing zeros, 4- and 8-wide tests.

With SIROCCO_JIT=0 each is a plain function with the same result.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sirocco.kernels.jit.compiled import JIT_ENABLED

__all__ = ["copy_run", "equal_words", "four_at_least", "prefetch", "trailing_zeros"]


def _prefetch(array: Any, index: Any) -> None:
    """Prefetches the cache line of `array[index]` (1-d, C order); never faults, returns nothing."""


def _trailing_zeros(word: Any) -> int:
    """Returns the number of zero bits below the lowest set bit of a non-zero u8."""
    value = int(word)
    return (value & -value).bit_length() - 1


def _four_at_least(array: Any, index: Any, a: Any, b: Any, c: Any, d: Any) -> bool:
    """Returns whether (a, b, c, d) ≥ array[index : index + 4] element by element (f4, one test)."""
    return bool(
        (a >= array[index])
        & (b >= array[index + 1])
        & (c >= array[index + 2])
        & (d >= array[index + 3])
    )


def _equal_words(array: Any, index: Any, word: Any) -> np.uint64:
    """Returns u8, a bit for each of array[index : index + 8] (u8) that equals `word`, one test."""
    return np.uint64(sum(int(array[index + i] == word) << i for i in range(8)))


def _copy_run(data: Any, count: Any, out: Any, at: Any) -> None:
    """Copies data[:count] to out[at : at + count] (both u1, C order, without overlap)."""
    out[at : at + count] = data[:count]


def _native() -> tuple[Any, Any, Any, Any, Any]:
    """Builds the LLVM forms of the five operations."""
    from llvmlite import ir  # noqa: PLC0415 - only where kernels are compiled
    from numba.core import cgutils, types  # noqa: PLC0415
    from numba.extending import intrinsic  # noqa: PLC0415

    def element_pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
        struct = context.make_array(array_type)(context, builder, array)
        return builder.gep(struct.data, [index])

    @intrinsic
    def prefetch(typing_context, array, index):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
            pointer = element_pointer(context, builder, signature.args[0], args[0], args[1])
            word = ir.IntType(32)
            byte_pointer = ir.IntType(8).as_pointer()
            function = cgutils.get_or_insert_function(
                builder.module,
                ir.FunctionType(ir.VoidType(), [byte_pointer, word, word, word]),
                "llvm.prefetch.p0",
            )
            # Read, keep in all cache levels, data cache.
            hints = [ir.Constant(word, 0), ir.Constant(word, 3), ir.Constant(word, 1)]
            builder.call(function, [builder.bitcast(pointer, byte_pointer), *hints])
            return context.get_dummy_value()

        return types.void(array, types.int64), generate

    @intrinsic
    def trailing_zeros(typing_context, word):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
            return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

        return types.int64(types.uint64), generate

    @intrinsic
    def four_at_least(typing_context, array, index, a, b, c, d):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
            pointer = element_pointer(context, builder, signature.args[0], args[0], args[1])
            vector_type = ir.VectorType(ir.FloatType(), 4)
            stored = builder.load(builder.bitcast(pointer, vector_type.as_pointer()), align=4)
            given = ir.Constant(vector_type, ir.Undefined)
            for lane in range(4):
                given = builder.insert_element(
                    given, args[2 + lane], ir.Constant(ir.IntType(32), lane)
                )
            holds = builder.fcmp_ordered(">=", given, stored)
            bits = builder.bitcast(holds, ir.IntType(4))
            return builder.icmp_unsigned("==", bits, ir.Constant(ir.IntType(4), 15))

        f4 = types.float32
        return types.boolean(array, types.int64, f4, f4, f4, f4), generate

    @intrinsic
    def equal_words(typing_context, array, index, word):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
            pointer = element_pointer(context, builder, signature.args[0], args[0], args[1])
            word_type = ir.IntType(64)
            vector_type = ir.VectorType(word_type, 8)
            stored = builder.load(builder.bitcast(pointer, vector_type.as_pointer()), align=8)
            given = ir.Constant(vector_type, ir.Undefined)
            for lane in range(8):
                given = builder.insert_element(given, args[2], ir.Constant(ir.IntType(32), lane))
            equal = builder.icmp_unsigned("==", stored, given)
            return builder.zext(builder.bitcast(equal, ir.IntType(8)), word_type)

        return types.uint64(array, types.int64, types.uint64), generate

    @intrinsic
    def copy_run(typing_context, data, count, out, at):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
            data_type, _, out_type, _ = signature.args
            source = context.make_array(data_type)(context, builder, args[0]).data
            target = element_pointer(context, builder, out_type, args[2], args[3])
            cgutils.raw_memcpy(builder, target, source, args[1], 1)
            return context.get_dummy_value()

        return types.void(data, types.int64, out, types.int64), generate

    return prefetch, trailing_zeros, four_at_least, equal_words, copy_run


if JIT_ENABLED:
    prefetch, trailing_zeros, four_at_least, equal_words, copy_run = _native()
else:
    prefetch, trailing_zeros, copy_run = _prefetch, _trailing_zeros, _copy_run
    four_at_least, equal_words = _four_at_least, _equal_words
