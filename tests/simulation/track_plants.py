"""Bugs on purpose in how objects are followed by the values of members."""

from __future__ import annotations

from sirocco.protocol import following
from tests.simulation.plants import Plant

TRACK_PLANTS = (
    Plant(
        "a copy names one of its values alone",
        "calm",
        ((following, "_further", lambda rows, tracks, values: None),),
    ),
)
