"""Checks the reported ends of queries against the logs of registry and slots.

The end of a version that asks for it is reported at most once: when its lifetime ended while a
slot held it, as soon as the time of all slots has passed the end; or when the registry removed or
replaced it, as soon as all slots have passed the record of the change. The latter also if no slot
ever held it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sirocco.model.query import query_handle
from sirocco.protocol.contract.columns import BY_REMOVAL, BY_TTL
from sirocco.protocol.contract.messages import (
    DELIVERIES,
    NO_REVISION,
    NOT_COPIED,
    REGISTRY,
    Change,
    Installed,
    Progress,
)
from sirocco.protocol.contract.positions import NO_TIME_MS, position_of
from sirocco.protocol.contract.record_sizes import partition_of
from tests.simulation.log import SimLog
from tests.simulation.query_versions import QueryVersion, version_of
from tests.simulation.slot_truth import SlotTruth
from tests.simulation.world import World


@dataclass(frozen=True, slots=True)
class _Ends:
    """How a version may end, and whether that must have been reported."""

    reasons: frozenset[int]
    is_due: bool


class EndLedger:
    """Records the reported ends and checks them in the end."""

    def __init__(
        self, log: SimLog, world: World, truth: SlotTruth, fail: Callable[[str], None]
    ) -> None:
        self._log = log
        self._world = world
        self._truth = truth
        self._fail = fail
        # (subscriber, query handle) → reasons, in the order of `deliveries`.
        self._sent: dict[tuple[str, int], list[int]] = defaultdict(list)
        # (registry partition, revision) → slot → position of its record there.
        self._published: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        # (query handle, revision) of versions that were copied for a change of the map.
        self._copied: set[tuple[int, int]] = set()

    @property
    def ends_total(self) -> int:
        """How many ends were reported."""
        return sum(map(len, self._sent.values()))

    def add_sent(self, subscriber: str, handle: int, reason: int) -> None:
        """Records a delivered end."""
        self._sent[subscriber, handle].append(reason)

    def installed(self, slot: int, offset: int, installed: Installed) -> None:
        """Records an append by the registry's owner to the log of a slot."""
        if installed.copied_at != NOT_COPIED:
            handles, revisions = installed.names.handles, installed.revisions
            self._copied.update(zip(handles.tolist(), revisions.tolist(), strict=True))
        if installed.ended is None:
            return
        for revision in installed.ended.revisions.tolist():
            reported = self._published[installed.registry_partition, revision]
            reported.setdefault(slot, offset)

    # --- the checks

    def check(
        self, versions: Callable[[int], list[QueryVersion]], sent: Mapping[str, Sequence[Any]]
    ) -> None:
        """Compares the reports with the required ones.

        Args:
            versions: of a query, by its handle.
            sent: subscriber → all notifications, in order.
        """
        for query_id in self._world.life_starts:
            handle = query_handle(query_id)
            ended, current = self._ended_by(handle)
            registered = self._with_skipped(handle, versions(handle), ended)
            for subscriber in sorted({version.subscriber for version in registered}):
                own = [
                    self._ends(version, ended.get(version.revision), current)
                    for version in registered
                    if version.subscriber == subscriber and "ended" in version.query.events
                ]
                reasons = self._sent.pop((subscriber, handle), [])
                name = f"{query_id} of {subscriber}"
                self._check_query(name, own, reasons)
                last = registered[-1]
                if own and own[-1].is_due and last.subscriber == subscriber and reasons:
                    self._check_last(name, handle, last, sent[subscriber])
        for subscriber, handle in self._sent:
            self._fail(f"{subscriber} was sent the end of {handle}, which it never had")

    def _with_skipped(
        self, handle: int, held: list[QueryVersion], ended: Mapping[int, tuple[int, Change]]
    ) -> list[QueryVersion]:
        """Adds the versions that ended and that no slot ever held.

        An owner that reads such a version together with what replaced it sends slots only what is
        in force after both. It reports the end nevertheless: it cannot know whether a predecessor,
        which read the version alone, sent it to slots and ended before it sent anything else.
        """
        records = self._log.partition(REGISTRY, handle % self._world.shape.registry).records
        skipped = ended.keys() - {version.revision for version in held}
        added = [version_of(records[revision], {}, is_whole=False) for revision in skipped]
        return sorted([*held, *added], key=lambda version: version.revision)

    def _check_query(self, name: str, own: list[_Ends], reasons: list[int]) -> None:
        due, most = sum(each.is_due for each in own), sum(bool(each.reasons) for each in own)
        if not due <= len(reasons) <= most:
            self._fail(f"{name}: {len(reasons)} ends were sent, wanted {due} to {most}")
        for reason in (BY_TTL, BY_REMOVAL):
            possible = sum(reason in each.reasons for each in own)
            needed = sum(each.is_due and each.reasons == {reason} for each in own)
            if not needed <= reasons.count(reason) <= possible:
                self._fail(f"{name}: ends by {reasons}, wanted {needed} to {possible} by {reason}")

    def _check_last(self, name: str, handle: int, last: QueryVersion, sent: Sequence[Any]) -> None:
        """Checks that nothing is reported after the end of the newest version."""
        if "ended" not in last.query.events:
            return
        of_query = [each for each in sent if each[0] == handle]
        if not getattr(of_query[-1][1], "ended", 0):
            self._fail(f"{name}: {of_query[-1]} was sent after the end")

    def _ends(self, version: QueryVersion, by: tuple[int, Change] | None, current: int) -> _Ends:
        handle = query_handle(version.query.id)
        partition = handle % self._world.shape.registry
        reasons: set[int] = set()
        positions, times_ms = self._progress(version.subscriber)
        slots = range(self._world.shape.slots)
        is_due = False
        is_past = [times_ms.get(slot, NO_TIME_MS) > version.expires_ms for slot in slots]
        if any(is_past):
            is_current, has_passed = version.revision == current, self._passed(version)
            # It is not known in which further slots it was.
            if is_current or has_passed or (handle, version.revision) in self._copied:
                reasons.add(BY_TTL)
            is_due = all(is_past) and (is_current or has_passed)
        if by is not None:
            _, change = by
            reasons.add(BY_TTL if version.expires_ms <= change.start_ms else BY_REMOVAL)
            reported = self._published.get((partition, version.revision), {})
            stays = version.stays.values()
            is_lost = self._is_lost(partition, version.revision, change)
            has_ended = all(stay.end is not None for stay in stays)
            if has_ended and len(reported) < len(slots) and not is_lost:
                self._fail(
                    f"the end of version {version.revision} was published in slots {reported} alone"
                )
            is_due |= len(reported) == len(slots) and all(
                positions.get(slot, 0) > position_of(offset) for slot, offset in reported.items()
            )
        return _Ends(frozenset(reasons), is_due)

    def _is_lost(self, partition: int, revision: int, change: Change) -> bool:
        """Returns whether a later owner may not know the ended version: compaction removed it."""
        records = self._log.partition(REGISTRY, partition).records
        epochs = (each.message.epoch for each in records if isinstance(each.message, Change))
        return records[revision].is_hidden and max(epochs) > change.epoch

    def _passed(self, version: QueryVersion) -> bool:
        """Returns whether its lifetime ended while a slot held it."""
        for slot, stay in version.stays.items():
            passed = self._truth.passed_at(slot, version.expires_ms)
            if passed is not None and (stay.end is None or max(passed, stay.begin) < stay.end):
                return True
        return False

    def _ended_by(self, handle: int) -> tuple[dict[int, tuple[int, Change]], int]:
        """Returns the end of each version without a successor, and the revision in force."""
        partition = handle % self._world.shape.registry
        current, epoch = NO_REVISION, 0
        found: dict[int, tuple[int, Change]] = {}
        for stored in self._log.partition(REGISTRY, partition).records:
            change = stored.message
            if not isinstance(change, Change):
                continue
            is_late, epoch = change.epoch < epoch, max(epoch, change.epoch)
            if is_late or change.handle != handle or change.is_probe or change.is_republished:
                continue
            if change.expected_revision != current:
                continue
            if current != NO_REVISION and (change.query is None or change.since == NO_REVISION):
                found[current] = stored.offset, change
            current = NO_REVISION if change.query is None else stored.offset
        return found, current

    def _progress(self, subscriber: str) -> tuple[dict[int, int], dict[int, int]]:
        """Returns how far a subscriber's merger has read each slot: position and time."""
        partition = partition_of(subscriber, self._world.shape.partials)
        for stored in reversed(self._log.partition(DELIVERIES, partition).records):
            if isinstance(progress := stored.message, Progress):
                slots = progress.slots.tolist()
                return (
                    dict(zip(slots, progress.positions.tolist(), strict=True)),
                    dict(zip(slots, progress.times_ms.tolist(), strict=True)),
                )
        return {}, {}
