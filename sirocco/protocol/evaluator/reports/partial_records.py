"""Turns the reports of slots into records on `partials`, in the order of each slot."""

from __future__ import annotations

from collections.abc import Iterator

from sirocco.protocol.contract.messages import Found
from sirocco.protocol.contract.record_sizes import RECORD_LIMITS, RecordLimits
from sirocco.protocol.evaluator.reports.match_records import Piece, Report, found_of, pieces_of
from sirocco.protocol.evaluator.reports.step_records import StepReport, step_founds
from sirocco.protocol.evaluator.standing.query_ends import EndReport, end_founds

Reports = list[Report | StepReport | EndReport]


def founds(reports: Reports, limits: RecordLimits = RECORD_LIMITS) -> Iterator[tuple[int, Found]]:
    """Returns the records of a poll, with their Kafka partitions."""
    pieces: dict[int, list[Piece]] = {}
    for report in reports:
        if isinstance(report, StepReport):
            yield from _made(pieces, limits)
            yield from step_founds(report, limits)
            continue
        if isinstance(report, EndReport):
            yield from _made(pieces, limits)
            yield from end_founds(report, limits)
            continue
        for target, piece in pieces_of(report, limits):
            pieces.setdefault(target, []).append(piece)
    yield from _made(pieces, limits)


def _made(pieces: dict[int, list[Piece]], limits: RecordLimits) -> Iterator[tuple[int, Found]]:
    for target, each in sorted(pieces.items()):
        for found in found_of(each, target, limits):
            yield target, found
    pieces.clear()
