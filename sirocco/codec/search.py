"""The contracts of searches (`search_service.proto`, `slot_search_service.proto`) ⇄ values."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from sirocco_api.v1 import query_pb2
from sirocco_api.v1 import search_service_pb2 as pb

from sirocco.codec.arrays import (
    F8,
    U1,
    U2,
    U4,
    U8,
    pack,
    read_column,
    read_offsets,
)
from sirocco.codec.columns import (
    Member,
    put_events,
    put_objects,
    read_events,
    read_objects,
)
from sirocco.codec.errors import put_error, read_error
from sirocco.codec.queries import read_query
from sirocco.internal_api.v1 import slot_search_service_pb2 as slot_pb
from sirocco.model.errors import InvalidArgument, SiroccoError
from sirocco.model.limits import STORED_LIMITS
from sirocco.model.objects import ObjectColumns
from sirocco.protocol.contract.columns import NO_EVENTS, EventColumns
from sirocco.protocol.contract.messages import NO_OBJECTS
from sirocco.protocol.search.messages import (
    DONE,
    MORE,
    MOVED,
    NO_TERM_SUMS,
    AnswerRows,
    Leftovers,
    Part,
    Question,
    Ranking,
    TermSums,
)
from sirocco.protocol.search.term_merge import TermCounts

# Bytes of one message, unless a single row is larger: a stream shared by many searches soon serves
# the next one, and the first objects of a large answer arrive early.
MESSAGE_BYTES_MAX = 1 << 20

# Names and lengths of a message's fields, generously.
_HEADS_BYTES = 512

_STATES = {
    MORE: slot_pb.SLOT_STATE_MORE,
    DONE: slot_pb.SLOT_STATE_DONE,
    MOVED: slot_pb.SLOT_STATE_MOVED,
}
assert all(ours == theirs for ours, theirs in _STATES.items())


# --- merger → evaluator


def put_question(message: slot_pb.SlotQuestion, question: Question, query: query_pb2.Query) -> None:
    """Fills `message`; the query is passed on unchanged."""
    message.query.CopyFrom(query)
    message.slots = pack(np.array(question.slots), U4)
    message.now_ms = question.now_ms
    message.from_ms = question.from_ms
    message.upto_ms = question.upto_ms
    message.position_token = question.position_token
    message.timeout_ms = question.timeout_ms
    if question.radius_m is not None:
        message.radius_m = question.radius_m
    message.answers = question.answers
    message.parts = question.parts
    message.takes_numbers = question.takes_numbers
    message.leftovers_of = question.leftovers_of
    message.listed = question.listed
    if question.nearby:
        message.nearby = pack(np.array(question.nearby), U4)


def read_question(message: slot_pb.SlotQuestion) -> Question:
    """Returns the question of a message.

    Raises:
        InvalidArgument: It is invalid.
    """
    query, _ = read_query(message.query, STORED_LIMITS)
    if query.mode != "snapshot":
        raise InvalidArgument("must be snapshot", field="mode")
    return Question(
        query=query,
        slots=tuple(read_column(message.slots, U4, "slots").tolist()),
        now_ms=message.now_ms,
        from_ms=message.from_ms,
        upto_ms=message.upto_ms,
        position_token=message.position_token,
        timeout_ms=message.timeout_ms,
        radius_m=message.radius_m if message.HasField("radius_m") else None,
        answers=max(1, message.answers),
        parts=max(1, message.parts),
        nearby=tuple(read_column(message.nearby, U4, "nearby").tolist()),
        takes_numbers=message.takes_numbers,
        leftovers_of=message.leftovers_of,
        listed=message.listed,
    )


# --- evaluator → merger


def write_part(question: int, part: Part) -> slot_pb.SearchSlotsResponse:
    """Returns the message of a part."""
    message = slot_pb.SearchSlotsResponse(
        question=question,
        is_last=part.is_last,
        is_waiting=part.is_waiting,
        map_version=part.map_version,
    )
    if len(part.slots):
        message.slots = pack(part.slots, U4)
        message.states = pack(part.states, U1)
    if len(part.row_ends):
        message.row_ends = pack(part.row_ends, U4)
    put_objects(message.objects, part.objects)
    put_events(message.events, part.events)
    if len(part.distances_m):
        message.distances_m = pack(part.distances_m, F8)
    if len(part.terms):
        _put_term_sums(message.terms, part.terms)
    if part.rest is not None:
        message.terms.rest = part.rest
    if part.ranking is not None:
        _put_ranking(message.ranked, part.ranking)
    for leftovers in part.leftovers:
        _put_leftovers(message.leftovers.add(), leftovers)
    return message


def write_failure(question: int, error: SiroccoError) -> slot_pb.SearchSlotsResponse:
    """Returns the message that ends a question without an answer."""
    message = slot_pb.SearchSlotsResponse(question=question, is_last=True)
    put_error(message.error, error)
    return message


def read_part(message: slot_pb.SearchSlotsResponse) -> Part | SiroccoError:
    """Returns the part of a message, or the error that it holds.

    Raises:
        InvalidArgument: Columns that do not fit together.
    """
    if message.HasField("error"):
        return read_error(message.error)
    slots = read_column(message.slots, U4, "slots")
    objects, events = NO_OBJECTS, NO_EVENTS
    if message.HasField("objects"):
        with Member("objects"):
            objects = read_objects(message.objects)
    rows = len(objects)
    if rows or message.HasField("events"):
        with Member("events"):
            events = read_events(message.events, rows)
    row_ends = np.empty(0, np.int64)
    if message.row_ends:
        row_ends = read_column(message.row_ends, U4, "row_ends", rows=len(slots)).astype(np.int64)
        if (np.diff(row_ends) < 0).any() or row_ends[-1] != rows:
            raise InvalidArgument("must rise to the number of objects", field="row_ends")
    return Part(
        slots=slots,
        states=read_column(message.states, U1, "states", rows=len(slots)),
        row_ends=row_ends,
        objects=objects,
        events=events,
        distances_m=read_column(
            message.distances_m, F8, "distances_m", rows=rows if message.distances_m else 0
        ),
        terms=_read_term_sums(message.terms),
        rest=message.terms.rest if message.terms.HasField("rest") else None,
        ranking=_read_ranking(message.ranked, rows) if message.HasField("ranked") else None,
        is_last=message.is_last,
        is_waiting=message.is_waiting,
        map_version=message.map_version,
        leftovers=tuple(_read_leftovers(one) for one in message.leftovers),
        origin=message,
    )


def _put_leftovers(message: slot_pb.Leftovers, leftovers: Leftovers) -> None:
    message.slot = leftovers.slot
    message.epoch = leftovers.epoch
    message.map_version = leftovers.version
    message.leaves = pack(leftovers.leaves, U4)
    if leftovers.archived_upto_ms is not None:
        message.archived_upto_ms = leftovers.archived_upto_ms


def _read_leftovers(message: slot_pb.Leftovers) -> Leftovers:
    with Member("leftovers"):
        leaves = read_column(message.leaves, U4, "leaves").astype(np.int32)
    has_archive = message.HasField("archived_upto_ms")
    return Leftovers(
        slot=message.slot,
        epoch=message.epoch,
        version=message.map_version,
        leaves=leaves,
        archived_upto_ms=message.archived_upto_ms if has_archive else None,
    )


def _put_term_sums(message: slot_pb.TermSumColumns, sums: TermSums) -> None:
    message.hashes = pack(sums.hashes, U8)
    message.counts = pack(sums.counts, U8)
    message.texts = pack(sums.texts, U1)
    message.text_offsets = pack(sums.text_offsets, U4)
    message.numbering = sums.numbering


def _read_term_sums(message: slot_pb.TermSumColumns) -> TermSums:
    if not message.hashes:
        return NO_TERM_SUMS
    with Member("terms"):
        hashes = read_column(message.hashes, U8, "hashes")
        texts = read_column(message.texts, U1, "texts")
        named = len(message.text_offsets) // U4.itemsize - 1
        if named > len(hashes):
            raise InvalidArgument(f"names {named} of {len(hashes)} terms", field="text_offsets")
        return TermSums(
            hashes,
            read_column(message.counts, U8, "counts", rows=len(hashes)),
            texts,
            read_offsets(message.text_offsets, named, len(texts), "text_offsets"),
            message.numbering,
        )


def _put_ranking(message: slot_pb.RankedColumns, ranking: Ranking) -> None:
    message.objects = ranking.objects
    message.tokens = ranking.tokens
    message.holders = pack(ranking.holders, U8)
    message.token_counts = pack(ranking.lengths, U4)
    message.frequencies = pack(ranking.frequencies, U2)


def _read_ranking(message: slot_pb.RankedColumns, rows: int) -> Ranking:
    with Member("ranked"):
        holders = read_column(message.holders, U8, "holders")
        frequencies = read_column(
            message.frequencies, U2, "frequencies", rows=rows * len(holders)
        ).reshape(rows, len(holders))
        lengths = read_column(message.token_counts, U4, "token_counts", rows=rows)
    return Ranking(message.objects, message.tokens, holders, lengths, frequencies)


# --- merger → client


def write_objects(
    objects: ObjectColumns, events: EventColumns, origin: object = None
) -> Iterator[pb.SearchResponse]:
    """Yields objects of a range answer as messages.

    Args:
        objects, events: n rows.
        origin: the message of the part that they form; if they fit one message, its columns are
            copied unchanged.
    """
    if isinstance(origin, slot_pb.SearchSlotsResponse) and objects.bytes_total <= MESSAGE_BYTES_MAX:
        response = pb.SearchResponse()
        response.objects.CopyFrom(origin.objects)
        response.events.CopyFrom(origin.events)
        yield response
        return
    for begin, end in row_chunks(objects):
        response = pb.SearchResponse()
        put_objects(response.objects, objects.slice(begin, end))
        put_events(response.events, events.slice(begin, end))
        yield response


def write_answer(answer: AnswerRows) -> Iterator[pb.SearchResponse]:
    """Yields an answer as messages, in its order."""
    for begin, end in row_chunks(answer.objects):
        response = pb.SearchResponse(values=pack(answer.values[begin:end], F8))
        put_objects(response.objects, answer.objects.slice(begin, end))
        put_events(response.events, answer.events.slice(begin, end))
        yield response
    if not len(answer.terms):
        return
    for part in _term_chunks(answer.terms):
        response = pb.SearchResponse()
        response.terms.terms = pack(part.terms, U1)
        response.terms.term_offsets = pack(part.offsets, U4)
        response.terms.counts = pack(part.counts, U8)
        yield response


def row_chunks(
    objects: ObjectColumns, bytes_max: int = MESSAGE_BYTES_MAX
) -> Iterator[tuple[int, int]]:
    """Yields (begin, end) of runs of rows that make messages of at most about `bytes_max`."""
    rows = len(objects)
    if objects.bytes_total <= bytes_max:
        if rows:
            yield 0, rows
        return
    # Beside the three byte columns 84 bytes a row: numbers, offsets, event keys, a value.
    ends = objects.text_offsets + objects.name_offsets + objects.attribute_offsets
    yield from _runs(ends[1:] + 84 * np.arange(1, rows + 1), bytes_max)


def _term_chunks(counts: TermCounts) -> Iterator[TermCounts]:
    for begin, end in _runs(counts.offsets[1:] + 12 * np.arange(1, len(counts) + 1)):
        first, last = counts.offsets[begin], counts.offsets[end]
        yield TermCounts(
            counts.terms[first:last],
            counts.offsets[begin : end + 1] - first,
            counts.counts[begin:end],
        )


def sum_chunks(sums: TermSums) -> Iterator[TermSums]:
    """Yields runs of sums that make messages of at most about a MiB."""
    rows, named = len(sums), len(sums.text_offsets) - 1
    # A text after the last is empty.
    offsets = np.full(rows + 1, sums.text_offsets[-1])
    offsets[: named + 1] = sums.text_offsets
    for begin, end in _runs(offsets[1:] + 20 * np.arange(1, rows + 1)):
        kept = offsets[min(begin, named) : min(end, named) + 1]
        yield TermSums(
            sums.hashes[begin:end],
            sums.counts[begin:end],
            sums.texts[kept[0] : kept[-1]],
            kept - kept[0],
            sums.numbering,
        )


def _runs(ends: NDArray[np.int64], bytes_max: int = MESSAGE_BYTES_MAX) -> Iterator[tuple[int, int]]:
    """Yields (begin, end) of runs of rows of at most `bytes_max`, or of one row.

    Args:
        ends: i8[n], bytes up to the end of each row.
        bytes_max: bytes of a run.
    """
    begin, held = 0, 0
    while begin < len(ends):
        room = held + bytes_max - _HEADS_BYTES
        end = max(int(np.searchsorted(ends, room, "right")), begin + 1)
        yield begin, end
        begin, held = end, int(ends[end - 1])
