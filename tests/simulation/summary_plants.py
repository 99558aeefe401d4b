"""Planted bugs in the routers' knowledge of the queries' keywords."""

from __future__ import annotations

from collections.abc import Sequence

from sirocco.protocol.contract.effects import Effect
from sirocco.protocol.contract.messages import Change
from sirocco.protocol.router import machine
from sirocco.protocol.router.map_change.query_copies import copy
from sirocco.protocol.router.queries.keyword_summary import KeywordSummary
from sirocco.protocol.router.queries.query_placement import Routings
from sirocco.protocol.router.queries.registry_partition import Registry
from tests.simulation.plants import Plant


def _publish_late(self: KeywordSummary, places: list[int]) -> list[Effect]:
    """Reports the queries' keywords with the next queries."""
    late, _LATE[self] = _LATE.get(self, []), _placed(self, places)
    return late


def _copy_in_silence(
    registry: Registry, reread: Sequence[tuple[int, Change]], routings: Routings
) -> list[Effect]:
    keyword_summary, registry.keyword_summary = registry.keyword_summary, None
    effects = copy(registry, reread, routings)
    registry.keyword_summary = keyword_summary
    return effects


# Reports that owners have yet to send.
_LATE: dict[KeywordSummary, list[Effect]] = {}
_placed = KeywordSummary.placed

SUMMARY_PLANTS = (
    Plant(
        "a registration is answered before the intake has its keywords",
        "storeless",
        ((KeywordSummary, "placed", _publish_late),),
        first_seed=9,
    ),
    Plant(
        "queries are copied for a map without their keywords",
        "storeless",
        ((machine, "copy", _copy_in_silence),),
        first_seed=5,
    ),
)
