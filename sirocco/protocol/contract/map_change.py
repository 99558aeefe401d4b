"""The change of the map v → v + 1 without a pause (docs/adr/0014): the steps and their order.

    MapPrepared ─▶ prepare in each registry partition ─▶ copies ─▶ MapCopied of each
    ─▶ MapSwitched ─▶ switch in each intake partition ─▶ checkpoints after it
    ─▶ retire in each registry partition ─▶ checkpoints after it ─▶ the next change may begin

Each step follows from the records in `control` and in the partition concerned, so a new owner of a
partition, or a new leader, continues where its predecessor stopped. A step may be repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sirocco.model.errors import FailedPrecondition, InvalidArgument
from sirocco.protocol.contract.control_view import ControlView
from sirocco.protocol.contract.messages import INTAKE, REGISTRY
from sirocco.schemes.builders.scheme import scheme_named
from sirocco.schemes.map.map import COMPILED_BYTES_MAX, PartitionMap
from sirocco.schemes.map.map_bytes import from_bytes

# A map is one record of `control`, and a record of the log holds 4 MiB at most. The qt-tree of a
# million leaves would not fit; of ten thousand it is below 1 MB.
MAP_BYTES_MAX = 3 << 20

# Routers count objects by the number of their leaf, and add to all counters at each flush: 8 MiB of
# them with this bound. Our maps number their leaves from 0, and take the least free number.
LEAF_ID_MAX = (1 << 20) - 1


class ChangePhase(Enum):
    """The phase of a change of the map."""

    NONE = "none"
    COPYING = "copying"
    SWITCHING = "switching"
    RETIRING = "retiring"


@dataclass(frozen=True, slots=True)
class ChangeProgress:
    """The progress of a change.

    Attributes:
        phase: what it waits for.
        version: of the map that follows; of the one in force when there is no change.
        waiting: Kafka partitions of `registry`, or of `intake` while switching, not there yet.
        partitions: how many of them there are.
    """

    phase: ChangePhase
    version: int
    waiting: tuple[int, ...] = ()
    partitions: int = 0


def progress(view: ControlView, intake_partitions: int, registry_partitions: int) -> ChangeProgress:
    """Returns the progress of a change of the map, by the records in `control`."""
    if version := view.prepared:
        waiting = uncopied(view, version, registry_partitions)
        return ChangeProgress(ChangePhase.COPYING, version, waiting, registry_partitions)
    version = view.map_version
    # The first map is in force without a change.
    if view.has_changed:
        if waiting := tuple(view.lagging(INTAKE, intake_partitions, version)):
            return ChangeProgress(ChangePhase.SWITCHING, version, waiting, intake_partitions)
        if waiting := tuple(view.lagging(REGISTRY, registry_partitions, version)):
            return ChangeProgress(ChangePhase.RETIRING, version, waiting, registry_partitions)
    return ChangeProgress(ChangePhase.NONE, version)


def uncopied(view: ControlView, version: int, partitions: int) -> tuple[int, ...]:
    """Returns the registry partitions whose live queries are not all placed by a map."""
    return tuple(p for p in range(partitions) if view.copied.get(p, 0) < version)


def check_proposal(data: bytes, view: ControlView, slots: int, now: ChangeProgress) -> PartitionMap:
    """Returns the map that is proposed.

    Args:
        data: its bytes.
        view: what is in force.
        slots: how many the cluster has.
        now: progress of an earlier change.

    Raises:
        InvalidArgument: It is damaged or too large, has gaps or overlaps, is of an unknown scheme
            or for another number of slots, or its leaves have numbers beyond the bound.
        FailedPrecondition: It does not follow the map in force, or a change is under way.
    """
    if len(data) > MAP_BYTES_MAX:
        raise InvalidArgument(
            f"has {len(data)} bytes, at most {MAP_BYTES_MAX}", field="partition_map"
        )
    found = from_bytes(data)
    scheme_named(found.scheme)
    if found.slots != slots:
        raise InvalidArgument(
            f"is for {found.slots} slots, the cluster has {slots}", field="partition_map.slots"
        )
    greatest = max(leaf.id for leaf in found.leaves)
    if greatest > LEAF_ID_MAX:
        raise InvalidArgument(
            f"number {greatest} of a leaf is over {LEAF_ID_MAX}", field="partition_map.leaves"
        )
    if now.phase is not ChangePhase.NONE:
        raise FailedPrecondition(
            f"the change to version {now.version} is under way ({now.phase.value}); "
            "propose again when it has ended"
        )
    if not view.map_version:
        # A change starts from a map by which queries are placed; there is none yet.
        raise FailedPrecondition("the first map is not in force yet; propose again when it is")
    if found.version != view.map_version + 1:
        raise FailedPrecondition(
            f"version {view.map_version} is in force, so the next is {view.map_version + 1}, "
            f"not {found.version}: the proposal was made for another map",
            field="partition_map.version",
        )
    return found


def check_compiled(data: bytes) -> None:
    """Compiles a proposed map, as every process will once it is declared.

    Raises:
        InvalidArgument: It is damaged or too large, or does not compile.
    """
    if len(data) > MAP_BYTES_MAX:
        raise InvalidArgument(
            f"has {len(data)} bytes, at most {MAP_BYTES_MAX}", field="partition_map"
        )
    found = from_bytes(data)
    try:
        size = scheme_named(found.scheme).compile(found).nbytes()
    except (ArithmeticError, LookupError, TypeError, ValueError, MemoryError) as error:
        if isinstance(error, InvalidArgument):
            raise
        raise InvalidArgument(f"cannot be compiled ({error})", field="partition_map") from error
    if size > COMPILED_BYTES_MAX:
        raise InvalidArgument(
            f"takes {size} bytes in every process, at most {COMPILED_BYTES_MAX}",
            field="partition_map",
        )
