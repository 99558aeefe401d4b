"""Reads protobuf messages of plain range queries, many at a time, without building them.

A plain query has a rectangle or no region, words that must all be held or no text, and nothing
else. All other messages are only recognised as such, and left to the usual readers. The numbers of
fields are those of `query.proto`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.wire_fields import copied, piece, varint
from sirocco.kernels.base.words import load_u64
from sirocco.kernels.base.xxh3 import hash_span
from sirocco.kernels.jit.compiled import kernel

__all__ = [
    "IDENTITY_BYTES_MAX",
    "ID_BYTES_MAX",
    "TEXT_BYTES_MAX",
    "digest_plain",
    "operator_of",
    "read_queries",
    "read_query",
    "split_rows",
]

# Longer ids and texts go the usual way. Both are far beyond what is common; the first is the limit
# of `fingerprint_spans`.
ID_BYTES_MAX = 128
TEXT_BYTES_MAX = 256

# Bytes of an identity besides id and subscriber, a text counted four times, and numbers.
IDENTITY_BYTES_MAX = 256

_U1_IN = types.Array(types.uint8, 1, "C", readonly=True)
_I4_IN = types.Array(types.int32, 1, "C", readonly=True)
_I8_IN = types.Array(types.int64, 1, "C", readonly=True)
_B1_IN = types.Array(types.boolean, 1, "C", readonly=True)


@kernel(types.int64(_U1_IN, types.int64, types.int64[::1], types.int64[::1]))
def split_rows(data: Any, tag: Any, begins: Any, ends: Any) -> Any:
    """Finds the pieces of a repeated submessage, as far as there is room for them.

    Args:
        data: u1[b], a sound message.
        tag: of the field.
        begins, ends: i8[n], overwritten.

    Returns:
        How many there are; -1 if the message is malformed.
    """
    position, count, end = np.int64(0), np.int64(0), np.int64(data.shape[0])
    while position < end:
        found, position = varint(data, position, end)
        if position < 0:
            return np.int64(-1)
        wire = np.int64(found & np.uint64(7))
        begin = position
        if wire == 2:
            begin, position = piece(data, position, end)
        elif wire == 0:
            _, position = varint(data, position, end)
        elif wire == 1:
            position += 8
        elif wire == 5:
            position += 4
        else:
            return np.int64(-1)
        if position < 0 or position > end:
            return np.int64(-1)
        if np.int64(found) == tag:
            if count < begins.shape[0]:
                begins[count], ends[count] = begin, position
            count += 1
    return count


@kernel
def _rectangle(data: Any, begin: Any, end: Any, box: Any) -> Any:
    """Reads `Rectangle` into box f8[4]; returns whether it is an ordinary one."""
    box[:] = 0.0
    sides = box.view(np.uint64)
    position = begin
    while position < end:
        tag = np.int64(data[position])
        if (tag & 7) != 1 or tag < 9 or tag > 33 or position + 9 > end:
            return False
        sides[(tag >> 3) - 1] = load_u64(data, position + 1)
        position += 9
    for i in range(4):
        # -0.0 becomes 0.0.
        box[i] += 0.0
    # The antimeridian belongs to both sides: a rectangle that reaches it has two boxes.
    return (
        box[0] > -180.0
        and box[0] <= box[2]
        and box[2] < 180.0
        and box[1] >= -90.0
        and box[1] <= box[3]
        and box[3] <= 90.0
    )


@kernel
def _is_simple(data: Any, begin: Any, end: Any) -> Any:
    """Whether a name is printable ASCII that JSON writes as it is."""
    for i in range(begin, end):
        byte = data[i]
        if byte < 0x20 or byte > 0x7E or byte in (0x22, 0x5C):
            return False
    return True


@kernel
def operator_of(data: Any, begin: Any, length: Any) -> Any:
    """Returns 1 for AND, 2 for OR, NOT and ANY, else 0."""
    if length == 2:
        return 2 if data[begin] == 0x4F and data[begin + 1] == 0x52 else 0
    if length != 3:
        return 0
    a, b, c = data[begin], data[begin + 1], data[begin + 2]
    if a == 0x41 and b == 0x4E and c == 0x44:
        return 1
    if (a == 0x4E and b == 0x4F and c == 0x54) or (a == 0x41 and b == 0x4E and c == 0x59):
        return 2
    return 0


@kernel
def _is_plain_text(data: Any, begin: Any, end: Any) -> Any:
    """Whether an expression is words with single spaces or ` AND ` between them."""
    position = begin
    was_word = False
    while True:
        start = position
        while position < end:
            byte = data[position]
            is_word = (
                (byte >= 0x61 and byte <= 0x7A)
                or (byte >= 0x30 and byte <= 0x39)
                or (byte >= 0x41 and byte <= 0x5A)
                or byte == 0x5F
            )
            if not is_word:
                break
            position += 1
        if position == start:
            return False
        operator = operator_of(data, start, position - start)
        if operator == 2 or (operator == 1 and not was_word):
            return False
        was_word = operator == 0
        if position == end:
            return was_word
        if data[position] != 0x20:
            return False
        position += 1


@kernel
def _range_kind(data: Any, begin: Any, end: Any, span: Any, box: Any) -> Any:
    """Reads `RangeKind`; returns 0 if it is not plain, 1 without a region, 2 with a rectangle.

    Args:
        data: the bytes; begin, end: of the message.
        span: i8[6], its last two get begin and end of the text.
        box: f8[4], gets the rectangle.
    """
    position, found = begin, 1
    while position < end:
        tag = data[position]
        first, after = piece(data, position + 1, end)
        if after < 0:
            return 0
        if tag == 0x0A and found == 1:
            # A region of nothing but one rectangle.
            if first >= after or data[first] != 0x0A:
                return 0
            inner, last = piece(data, first + 1, after)
            if last != after or not _rectangle(data, inner, last, box):
                return 0
            found = 2
        elif tag == 0x12 and span[4] == span[5]:
            span[4], span[5] = first, after
        else:
            return 0
        position = after
    if span[5] - span[4] > TEXT_BYTES_MAX:
        return 0
    if span[4] < span[5] and not _is_plain_text(data, span[4], span[5]):
        return 0
    return found


@kernel
def read_query(data: Any, begin: Any, end: Any, span: Any, box: Any) -> Any:
    """Reads `Query`; returns as `_range_kind`.

    Args:
        data: the bytes; begin, end: of the message.
        span: i8[6], gets begin and end of id, subscriber and text.
        box: f8[4], gets the rectangle.
    """
    span[:] = 0
    box[:] = 0.0
    position, found, is_continuous = begin, 0, False
    while position < end:
        tag = data[position]
        if tag == 0x18:
            if position + 1 >= end or data[position + 1] != 1:
                return 0
            is_continuous = True
            position += 2
            continue
        first, after = piece(data, position + 1, end)
        if after < 0:
            return 0
        if tag == 0x0A and span[1] == 0:
            span[0], span[1] = first, after
        elif tag == 0x12 and span[3] == 0:
            span[2], span[3] = first, after
        elif tag == 0x52 and found == 0:
            found = _range_kind(data, first, after, span, box)
            if found == 0:
                return 0
        else:
            return 0
        position = after
    for name in range(0, 4, 2):
        length = span[name + 1] - span[name]
        if length == 0 or length > ID_BYTES_MAX or not _is_simple(data, span[name], span[name + 1]):
            return 0
    return found if is_continuous else 0


@kernel(
    types.void(_U1_IN, _I8_IN, _I8_IN, types.uint8[::1], types.int64[:, ::1], types.float64[:, ::1])
)
def read_queries(data: Any, begins: Any, ends: Any, kinds: Any, spans: Any, boxes: Any) -> None:
    """Reads `Query` messages.

    Args:
        data: u1[b], with eight readable bytes after the last message.
        begins, ends: i8[n], of each message.
        kinds: u1[n], overwritten: 0 for what is not plain, 1 without a region, 2 with a rectangle.
        spans: i8[n, 6], overwritten: begin and end of id, subscriber and text.
        boxes: f8[n, 4], overwritten: west, south, east, north.
    """
    for row in range(kinds.shape[0]):
        kinds[row] = read_query(data, begins[row], ends[row], spans[row], boxes[row])


_HEAD = np.frombuffer(b'["range",["', np.uint8)
_MODE = np.frombuffer(b'","continuous",', np.uint8)
_SIDES = np.frombuffer(b'{"west":"south":"east":"north":', np.uint8)
_NULL = np.frombuffer(b"null", np.uint8)
_POSITIVE = np.frombuffer(b'[{"positive":[', np.uint8)
_NEGATIVE = np.frombuffer(b'],"negative":[]}]', np.uint8)
_TAIL = np.frombuffer(b",null,null,null,null,[]]]", np.uint8)
_SIDE_ENDS = np.array([0, 8, 16, 23, 31], np.int64)


@kernel(
    types.void(
        *(_U1_IN, _I8_IN, _U1_IN, _I8_IN, _B1_IN, _U1_IN, _I8_IN, _I4_IN, _U1_IN, _I8_IN),
        types.uint64[::1],
    )
)
def digest_plain(
    ids: Any,
    id_offsets: Any,
    names: Any,
    name_offsets: Any,
    has_box: Any,
    numbers: Any,
    term_offsets: Any,
    term_rows: Any,
    words: Any,
    word_offsets: Any,
    out: Any,
) -> None:
    """Writes the digest of each query: xxh3-64 of its identity in JSON and its subscriber.

    Args:
        ids, names: u1, ids and subscribers; id_offsets, name_offsets: i8[n + 1].
        has_box: b1[n], whether it has a rectangle.
        numbers: u1, a JSON array with the four sides of each row in brackets, also of rows without.
        term_offsets, term_rows, words, word_offsets: as of `text.plain_terms.intern_terms`.
        out: u8[n], overwritten.
    """
    scratch = np.zeros(4_096, np.uint8)
    at_number = np.int64(1)
    for row in range(out.shape[0]):
        name_length = name_offsets[row + 1] - name_offsets[row]
        needed = 512 + id_offsets[row + 1] - id_offsets[row] + name_length
        for t in range(term_offsets[row], term_offsets[row + 1]):
            needed += 3 + word_offsets[term_rows[t] + 1] - word_offsets[term_rows[t]]
        if needed > scratch.shape[0]:
            scratch = np.zeros(2 * needed, np.uint8)
        at = copied(scratch, np.int64(0), _HEAD, 0, _HEAD.shape[0])
        at = copied(scratch, at, ids, id_offsets[row], id_offsets[row + 1])
        at = copied(scratch, at, _MODE, 0, _MODE.shape[0])
        # After the bracket of the row's numbers.
        at_number += 1
        for side in range(4):
            start = at_number
            while numbers[at_number] != 0x2C and numbers[at_number] != 0x5D:
                at_number += 1
            if has_box[row]:
                if side > 0:
                    scratch[at] = 0x2C
                    at += 1
                at = copied(scratch, at, _SIDES, _SIDE_ENDS[side], _SIDE_ENDS[side + 1])
                at = copied(scratch, at, numbers, start, at_number)
            at_number += 1
        # The comma between rows.
        at_number += 1
        if has_box[row]:
            scratch[at] = 0x7D
            at += 1
        else:
            at = copied(scratch, at, _NULL, 0, 4)
        scratch[at] = 0x2C
        at += 1
        if term_offsets[row] == term_offsets[row + 1]:
            at = copied(scratch, at, _NULL, 0, 4)
        else:
            at = copied(scratch, at, _POSITIVE, 0, _POSITIVE.shape[0])
            for t in range(term_offsets[row], term_offsets[row + 1]):
                if t > term_offsets[row]:
                    scratch[at] = 0x2C
                    at += 1
                scratch[at] = 0x22
                word = term_rows[t]
                at = copied(scratch, at + 1, words, word_offsets[word], word_offsets[word + 1])
                scratch[at] = 0x22
                at += 1
            at = copied(scratch, at, _NEGATIVE, 0, _NEGATIVE.shape[0])
        at = copied(scratch, at, _TAIL, 0, _TAIL.shape[0])
        at = copied(scratch, at, names, name_offsets[row], name_offsets[row + 1])
        out[row] = hash_span(scratch, np.int64(0), at)
