"""Planted bugs in the treatment of records that end the evaluators that process them."""

from __future__ import annotations

from dataclasses import replace

from sirocco.protocol.contract.messages import Installed, Routed
from sirocco.protocol.contract.poison_trials import Trial
from sirocco.protocol.contract.positions import NO_INTERVALS
from sirocco.protocol.evaluator import careful_reading
from tests.simulation.plants import Plant


def _emptied_of_all(message: Routed | Installed) -> Routed:
    return replace(_emptied(message), intervals=NO_INTERVALS)


_emptied = careful_reading._emptied

POISON_PLANTS = (
    Plant(
        "a record that ended two owners is attempted by a third",
        "poison",
        ((Trial, "poison", property(lambda self: None)),),
    ),
    Plant(
        "an owner ignores which records its predecessor was processing when it ended",
        "poison",
        ((Trial, "granted", lambda self, former_epoch, *, has_ended: None),),
    ),
    Plant(
        "a record that is skipped leaves a gap",
        "poison",
        ((careful_reading, "_emptied", _emptied_of_all),),
    ),
)
