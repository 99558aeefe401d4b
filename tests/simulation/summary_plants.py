"""Bugs on purpose in what routers know of the queries' keywords."""

from __future__ import annotations

from collections.abc import Sequence

from sirocco.protocol import router
from sirocco.protocol.copying import copy
from sirocco.protocol.effects import Effect
from sirocco.protocol.messages import Change
from sirocco.protocol.placement import Routings
from sirocco.protocol.registry import Registry
from sirocco.protocol.summarising import Summarising
from tests.simulation.plants import Plant


def _say_late(self: Summarising, places: list[int]) -> list[Effect]:
    """What queries need is said with the next ones."""
    late, _LATE[self] = _LATE.get(self, []), _placed(self, places)
    return late


def _copy_in_silence(
    registry: Registry, reread: Sequence[tuple[int, Change]], routings: Routings
) -> list[Effect]:
    summarising, registry.summarising = registry.summarising, None
    effects = copy(registry, reread, routings)
    registry.summarising = summarising
    return effects


# What owners have yet to say.
_LATE: dict[Summarising, list[Effect]] = {}
_placed = Summarising.placed

SUMMARY_PLANTS = (
    Plant(
        "a registration is answered before the intake has its keywords",
        "calm",
        ((Summarising, "placed", _say_late),),
    ),
    Plant(
        "queries are copied for a map without their keywords",
        "changing",
        ((router, "copy", _copy_in_silence),),
    ),
)
