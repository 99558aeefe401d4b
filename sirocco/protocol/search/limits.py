"""The limits and intervals of searches, at mergers and at evaluators."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """How much a search keeps and sends at once, and how often it tries.

    Attributes:
        retry_ms_min, retry_ms_max: pause between two tries of one slot. A moving slot has no owner
            for some 10 ms, a dead evaluator's for some seconds. The jitter spreads the retries of
            searches that failed together.
        look_ms: interval of checks whether a slot that was asked has another owner: an evaluator
            whose machine is gone does not answer at all.
        nearby_max: a search for the nearest objects with a word asks at once for so many slots at
            most besides the point's: each costs its evaluator some 20 us, a second question a
            millisecond.
        repeatable_rows_max: event keys that are kept of a slot whose answer is under way, 16 bytes
            each. A slot that fails after more of them is not asked again.
        kept_bytes_max: bytes that one search may keep in a merger: a list of 10,000 objects with
            texts of some KB.
        loop_rows_max, loop_bytes_max: rows of answers that are sorted in the merger's loop, some
            100 us, and their bytes, which are copied, some ms; subscribers' streams and other
            searches would wait for more.
        questions_max: questions of all mergers in progress at an evaluator. Each holds its rows and
            a part or two; further ones wait at the mergers, which know their callers' time limits.
        slice_s: after this time another question gets the thread for a while. Most are answered
            within it.
        part_bytes: the first part of a range answer is sent at this size, so that the client has
            the first objects early. Each following part is larger by as much, up to three times,
            since each costs three processes some 100 us whatever it holds; but every part is sent
            to the client as one message.
        nearest_rows: rows of several slots searched for the nearest in one call. Each call costs
            some 100 us beside the search; for two common words that rarely occur together all rows
            are read, which takes a thread some 100 ms.
        unmeasured_rows: objects that are assembled without checking their sizes.
        listed_factor, listed_min: evaluators first list so many times more terms than a search is
            for, and so many at least (`term_lists`). Of words as people use them, the bounds of
            four such lists are together a fourth to a third of the threshold.
        stream_bytes_max: the next message of a stream of searches is read when the searches of
            earlier ones that are under way take no more. Without a bound, those with large polygons
            would take a hundred times what the edge allows for messages.
        stream_responses_max: and when no more responses wait: a client that asks and reads nothing
            would fill the memory with refusals.
    """

    retry_ms_min: int = 10
    retry_ms_max: int = 250
    look_ms: int = 100
    nearby_max: int = 16
    repeatable_rows_max: int = 1_000_000
    kept_bytes_max: int = 64 << 20
    loop_rows_max: int = 2_000
    loop_bytes_max: int = 1 << 20
    questions_max: int = 512
    slice_s: float = 0.005
    part_bytes: int = 256 << 10
    nearest_rows: int = 8 << 20
    unmeasured_rows: int = 256
    listed_factor: int = 4
    listed_min: int = 64
    stream_bytes_max: int = 1 << 20
    stream_responses_max: int = 1_024

    @property
    def part_bytes_max(self) -> int:
        """Size of the largest parts of a range answer."""
        return 3 * self.part_bytes


LIMITS = SearchLimits()
