"""Reads and writes whole words of byte arrays, unaligned; multiplies words to 128 bits.

Each is one or two instructions inside a kernel. With SIROCCO_JIT=0 they are plain Python with
the same results. Positions are byte positions. Nothing is checked: a word may be read or written
only where the array has eight more bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sirocco.kernels.jit.compiled import JIT_ENABLED

__all__ = ["load_u64", "multiply_fold", "store_u64"]


def _load_u64(data: Any, position: Any) -> Any:
    """Returns the eight bytes at a position as a little-endian u8."""
    return np.uint64(int.from_bytes(data[position : position + 8].tobytes(), "little"))


def _store_u64(data: Any, position: Any, word: Any) -> None:
    """Writes a u8 to the eight bytes at a position, little-endian."""
    data[position : position + 8] = np.frombuffer(int(word).to_bytes(8, "little"), np.uint8)


def _multiply_fold(left: Any, right: Any) -> Any:
    """Returns the exclusive or of both halves of the 128-bit product of two u8."""
    product = int(left) * int(right)
    return np.uint64((product ^ (product >> 64)) & 0xFFFF_FFFF_FFFF_FFFF)


def _native() -> tuple[Any, ...]:
    """Builds the LLVM forms of the operations above."""
    from llvmlite import ir  # noqa: PLC0415 - only where kernels are compiled
    from numba.core import cgutils, types  # noqa: PLC0415
    from numba.extending import intrinsic  # noqa: PLC0415

    word_type = ir.IntType(64)

    def pointer(context: Any, builder: Any, array_type: Any, array: Any, position: Any) -> Any:
        proxy: Any = cgutils.create_struct_proxy(array_type)
        data = proxy(context, builder, array).data
        return builder.bitcast(builder.gep(data, [position]), word_type.as_pointer())

    @intrinsic
    def load_u64(typing_context, data, position):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
            return builder.load(
                pointer(context, builder, signature.args[0], args[0], args[1]), align=1
            )

        return types.uint64(data, types.int64), generate

    @intrinsic
    def store_u64(typing_context, data, position, word):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
            target = pointer(context, builder, signature.args[0], args[0], args[1])
            builder.store(args[2], target, align=1)
            return context.get_dummy_value()

        return types.void(data, types.int64, types.uint64), generate

    @intrinsic
    def multiply_fold(typing_context, left, right):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
            wide = ir.IntType(128)
            product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
            high = builder.lshr(product, ir.Constant(wide, 64))
            return builder.xor(builder.trunc(product, word_type), builder.trunc(high, word_type))

        return types.uint64(types.uint64, types.uint64), generate

    return load_u64, store_u64, multiply_fold


load_u64: Any
store_u64: Any
multiply_fold: Any
if JIT_ENABLED:
    load_u64, store_u64, multiply_fold = _native()
else:
    load_u64, store_u64, multiply_fold = _load_u64, _store_u64, _multiply_fold
