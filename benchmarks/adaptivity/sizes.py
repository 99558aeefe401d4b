"""The sizes of the scenes, and of the maps."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.schemes.queries import Queries
from benchmarks.schemes.streams import Stream
from sirocco.schemes.builders.scheme import scheme_named
from sirocco.schemes.map.map import PartitionMap

# Four slots for each evaluator, and twice as many leaves (ClusterSettings: "about 4 for each").
SLOTS = 32
LEAVES = 64


@dataclass(frozen=True, slots=True)
class Size:
    """The size of scenes.

    Attributes:
        objects: In each pool.
        queries: Standing all the time; as many more in hot spots.
        quiet_s: Duration of the low rate, see `cluster.QUIET_SHARE`.
        calm_s: When a scene changes.
        hot_s: How long it stays so.
        after_s: How long it continues after that.
    """

    objects: int
    queries: int
    quiet_s: float
    calm_s: float
    hot_s: float
    after_s: float


FULL = Size(20_000, 20_000, 360.0, 420.0, 480.0, 60.0)
# Too small for statements about the system; but all ways are run.
QUICK = Size(4_000, 3_000, 60.0, 80.0, 120.0, 10.0)


def built(scheme: str, objects: Stream, queries: Queries) -> PartitionMap:
    """Returns a scheme's map of a sample."""
    sample = objects.sample(queries.sample())
    return scheme_named(scheme).build(sample, LEAVES, SLOTS)
