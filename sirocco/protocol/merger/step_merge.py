"""Steps of terms and ranked queries: parts of slots become one list for each query and step.

Every slot with a result for a step sends it, in one part or more, when its time has passed the
step. Parts are added up. A step is complete when the time of all slots has passed it, since each
slot sends its new time with the last of its parts.

A query that asks for the past has a first step that looks back. All slots may have passed its time
when they install the query: its steps wait until all have sent the first (`first_step_barrier`).

For other queries a part may arrive even later, if a slot installed the query when its own time and
those of the others had passed the step. It makes a step of its own, unless a later step has been
sent: so each step is sent once, and those of a query in order. Such a first step counts objects
that arrived before the registration was acknowledged, which may count or not.

A slot whose evaluator is gone does not advance, and steps wait for it. The waiting steps are
bounded: beyond `bytes_max` the earliest step is sent without the missing slots, and is marked as
partial. Their parts then count as late. This too depends on the contents of the log alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.kinds import KIND_TERMS
from sirocco.protocol.contract.columns import QueryNames
from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.messages import Found
from sirocco.protocol.contract.query_specs import Spec, definition_of_spec
from sirocco.protocol.merger.first_step_barrier import FirstStepBarrier
from sirocco.protocol.merger.limits import LIMITS, STEP_BYTES_MAX, MergerLimits
from sirocco.protocol.merger.list_batch import ListBatch
from sirocco.protocol.merger.pending_steps import Step, pending_state, pending_steps
from sirocco.protocol.merger.state_pieces import Piece, in_pieces, weighed_pieces, weight_of_rows
from sirocco.protocol.merger.step_lists import NO_IDS, Version, list_of
from sirocco.protocol.search.ranked_merge import Candidates
from sirocco.protocol.search.term_merge import TermCounts, added

# Columns that a checkpoint of an earlier release does not have.
_OF_QUERIES = ("queries", "revisions", "left_by")


WITHOUT_LIMIT = 1 << 62

# Bytes of a step that take as long as one without any, some 0.1 ms: the terms of all slots are
# added up one by one, candidates are scored and sorted.
_WEIGHT_BYTES = 12 << 10

# Bytes of steps, and of lists that were sent, that are copied to a checkpoint while a row is made.
_ROW_BYTES = 4 << 10


def weight_of(bytes_total: int) -> int:
    """Returns how much of a turn a step takes."""
    return 1 + bytes_total // _WEIGHT_BYTES


@dataclass(slots=True, kw_only=True)
class StepMerges:
    """All steps of one Kafka partition's subscribers.

    Attributes:
        bytes_max: about how many bytes pending steps may take.
        limits: of the merger.
        late_parts: how many parts arrived after a step as late was complete, or after the end.
        partial_steps: number of steps that were sent without waiting for all slots.
        bytes_total: about how many bytes pending steps take.
        bytes_waiting: about how many the steps took whose lists wait to be sent.
        settled_total: how often the last pending step of a version was sent or dropped.
    """

    bytes_max: int = STEP_BYTES_MAX
    limits: MergerLimits = LIMITS
    late_parts: int = 0
    partial_steps: int = 0
    bytes_total: int = 0
    bytes_waiting: int = 0
    settled_total: int = 0
    _versions: dict[int, Version] = field(default_factory=dict)
    # Key of a version → its steps by time.
    _pending: dict[int, dict[int, Step]] = field(default_factory=dict)
    # Query → versions with pending steps.
    _pending_keys: dict[int, set[int]] = field(default_factory=dict)
    # (time, key), the earliest first; entries of ended versions stay until their time.
    _due: list[tuple[int, int]] = field(default_factory=list)
    # Steps of these versions enter `_due` only when all slots have sent the first one.
    _first_steps: FirstStepBarrier = field(default_factory=FirstStepBarrier)
    _outgoing: list[ListBatch] = field(default_factory=list)
    # Query → revision and `dropped_by` of the version whose ranked list its subscriber has,
    # unless that was empty.
    _sent_revisions: dict[int, tuple[int, int]] = field(default_factory=dict)

    def __len__(self) -> int:
        """Returns the number of known versions of queries."""
        return len(self._versions)

    @property
    def has_output(self) -> bool:
        """Whether any step was completed since the last `flush`."""
        return bool(self._outgoing)

    @property
    def has_pending(self) -> bool:
        """Whether any step waits."""
        return bool(self._pending)

    @property
    def is_awaiting(self) -> bool:
        """Whether any slot has yet to send the first step of a version that looks back."""
        return bool(self._first_steps)

    @property
    def pending_steps(self) -> int:
        """Returns how many steps wait."""
        return sum(map(len, list(self._pending.values())))

    @property
    def earliest_ms(self) -> int | None:
        """The earliest step that waits, or did so when its version ended; None without any."""
        return next((at_ms for at_ms, _ in self._due), None)

    def take(self, found: Found, row: int, spec: Spec, now_ms: int, query: int = 0) -> None:
        """Takes a part.

        Args:
            found: the record.
            row: of its steps.
            spec: of the query.
            now_ms: the time of the slot that is farthest ahead.
            query: see `Version`.
        """
        steps = found.steps
        assert steps is not None
        key, at_ms = spec.key, int(steps.at_ms[row])
        keywords = int(steps.holder_offsets[row + 1] - steps.holder_offsets[row])
        if spec.ranked is not None and keywords != len(spec.ranked.keywords):
            # Damaged: its keyword counts cannot be added to those of others.
            return
        slot_count = 0 if steps.slot_counts is None else int(steps.slot_counts[row])
        if slot_count and key not in self._versions:
            self._first_steps.begin(key, slot_count, max(now_ms, at_ms))
        version = self._version(spec, query)
        if slot_count:
            slot = int(found.intervals.sources[steps.interval_rows[row]])
            self._first_steps.note_report(key, slot)
        if at_ms <= version.complete_ms or at_ms >= version.end_ms:
            self.late_parts += 1
            return
        of_version = self._steps_of(key, version)
        step = of_version.get(at_ms)
        if step is None:
            step = of_version[at_ms] = Step(_named(found.queries, int(steps.queries[row])))
            if key not in self._first_steps:
                heapq.heappush(self._due, (at_ms, key))
        if spec.kind != KIND_TERMS:
            step.add(Candidates.of(found, row))
        else:
            step.terms.append(TermCounts.of(found, row))
            if len(step.terms) > self.limits.terms_parts_max:
                step.terms = [added(step.terms)]
        self.bytes_total += step.weigh()

    def _version(self, spec: Spec, query: int) -> Version:
        """Returns the state of a version, which begins with the first word of it: also an end."""
        version = self._versions.get(spec.key)
        if version is None:
            version = self._versions[spec.key] = Version(query=query, revision=spec.revision)
        return version

    def _steps_of(self, key: int, version: Version) -> dict[int, Step]:
        """Returns the pending steps of a version, of which there will be some."""
        steps = self._pending.get(key)
        if steps is None:
            steps = self._pending[key] = {}
            self._pending_keys.setdefault(version.query, set()).add(key)
        return steps

    def _settle(self, key: int) -> dict[int, Step]:
        """Forgets that a version has pending steps; returns those it had."""
        steps = self._pending.pop(key, None)
        if steps is None:
            return {}
        query = self._versions[key].query
        keys = self._pending_keys[query]
        keys.discard(key)
        if not keys:
            del self._pending_keys[query]
        self.settled_total += 1
        return steps

    def awaits(self, key: int) -> bool:
        """Whether some slot has yet to send the first step of a version that looks back."""
        return key in self._first_steps

    def awaits_query(self, query: int, revision: int) -> bool:
        """Whether steps of versions of a query, up to a revision, are still to be sent."""
        keys = self._pending_keys.get(query, ())
        return any(self._versions[key].revision <= revision for key in keys)

    def pause(self, slot: int) -> None:
        """Notes that a slot has sent its time, and so all its parts before it."""
        for key in self._first_steps.pause(slot):
            self._end_wait(key)

    def complete(self, time_ms: int, weight_max: int = WITHOUT_LIMIT) -> int:
        """Sends steps before the time that all slots have reached, and more if too many wait.

        Queries of one registration have their steps at one time, each hour, as many as there are.

        Args:
            time_ms: the least time of all slots.
            weight_max: how much is sent; see `weight_of`.

        Returns:
            The weight of what was done; less than `weight_max` when that was all.
        """
        weight = 0
        for key in self._first_steps.expire(time_ms):
            self._stop_waiting(key, time_ms)
            weight += 1
            if weight >= weight_max:
                return weight
        while weight < weight_max:
            is_late = self.bytes_total > self.bytes_max
            if is_late and not self._due:
                for key in list(self._first_steps):
                    self._stop_waiting(key, time_ms)
            if self._due and self._due[0][0] < time_ms:
                weight += self._send_earliest(is_partial=False)
            elif is_late:
                weight += self._send_earliest(is_partial=True)
            else:
                break
        return weight

    def _end_wait(self, key: int) -> None:
        """Lets steps of a version be complete when the time of all slots has passed them."""
        if key in self._first_steps:
            self._first_steps.drop(key)
            for at_ms in self._pending.get(key, ()):
                heapq.heappush(self._due, (at_ms, key))

    def _stop_waiting(self, key: int, time_ms: int) -> None:
        """Does the same without waiting for all slots; steps due by then are sent as partial."""
        for at_ms, step in self._pending.get(key, {}).items():
            step.is_partial = at_ms < time_ms
        self._end_wait(key)

    def _send_earliest(self, *, is_partial: bool) -> int:
        """Sends the earliest step; returns its weight."""
        at_ms, key = heapq.heappop(self._due)
        of_version = self._pending.get(key)
        step = None if of_version is None else of_version.pop(at_ms, None)
        if of_version is None or step is None:
            return 1
        if not of_version:
            self._settle(key)
        self.bytes_total -= step.bytes_total
        self._send(step, at_ms, key, is_partial=is_partial or step.is_partial)
        return weight_of(step.bytes_total)

    def _send(self, step: Step, at_ms: int, key: int, *, is_partial: bool) -> None:
        self.partial_steps += is_partial
        version = self._versions[key]
        version.complete_ms = at_ms
        is_required = self._replaces(version)
        sent_key = list_of(
            step,
            at_ms,
            version,
            self.limits.records.bytes_max,
            is_partial=is_partial,
            is_required=is_required,
        )
        if sent_key is not None:
            self._outgoing.append(sent_key)
            self.bytes_waiting += step.bytes_total
            self._note_sent(version)

    def _replaces(self, version: Version) -> bool:
        """Whether the subscriber's list is from a version that this one continues."""
        revision, dropped_by = self._sent_revisions.get(version.query, (version.revision, 0))
        # A list left by this very version was replaced: a slot that is left cannot know more.
        is_dropped = 0 < dropped_by < version.revision
        return revision < version.revision and not is_dropped

    def _note_sent(self, version: Version) -> None:
        """Notes that a list of a version was sent."""
        query = version.query
        if not query:
            return
        # A later version repeats its list after one of an earlier version, even an empty one.
        is_earlier = version.revision < self._sent_revisions.get(query, (0, 0))[0]
        if version.sent.shape[1] or is_earlier:
            self._sent_revisions[query] = version.revision, version.dropped_by
        else:
            self._sent_revisions.pop(query, None)

    def flush(self) -> list[ListBatch]:
        """Returns the lists of the steps that were completed since the last call."""
        sent_key, self._outgoing = self._outgoing, []
        self.bytes_waiting = 0
        return sent_key

    # --- versions that end

    def end(self, spec: Spec, query: int, slot: int, time_ms: int) -> None:
        """Ends a version at the time of a slot: parts of later steps do not count.

        Earlier steps are sent as usual when all slots have passed them.

        Args:
            spec: of the version.
            query: see `Version`.
            slot: which reports the end.
            time_ms: its time there.
        """
        key, version = spec.key, self._version(spec, query)
        version.end_ms = min(version.end_ms, time_ms)
        of_version = self._pending.get(key, {})
        for at_ms in [at_ms for at_ms in of_version if at_ms >= version.end_ms]:
            self.bytes_total -= of_version.pop(at_ms).bytes_total
        if not of_version:
            self._settle(key)
        if self._first_steps.end(key, slot):
            self._end_wait(key)

    def note_dropped(self, spec: Spec, query: int, revision: int) -> None:
        """Notes that a slot knows of no version that continues an ended one.

        Args:
            spec: of the version that has ended.
            query: see `Version`.
            revision: of the change that ended it: of the version that replaces it, or a removal.
        """
        version = self._version(spec, query)
        version.dropped_by = revision
        sent_revision, dropped_by = self._sent_revisions.get(query, (revision, 0))
        # A version later than a change that left the list neither kept nor replaced it.
        if sent_revision < revision and (not dropped_by or spec.revision <= dropped_by):
            self._sent_revisions[query] = sent_revision, max(dropped_by, revision)

    def note_continued(self, key: int, query: int, revision: int) -> None:
        """Notes that a version does continue an ended one: a slot that is left could not know it.

        Args:
            key: of the version.
            query: see `Version`.
            revision: of the change that ended it.
        """
        version = self._versions.get(key)
        if version is None or version.dropped_by != revision:
            return
        version.dropped_by = 0
        if (sent_revision := self._sent_revisions.get(query)) and sent_revision[1] == revision:
            self._sent_revisions[query] = sent_revision[0], 0

    def drop(self, key: int) -> None:
        """Forgets a version of a query, and its steps that are not complete."""
        steps = self._settle(key)
        self.bytes_total -= sum(step.bytes_total for step in steps.values())
        version = self._versions.pop(key, None)
        if version and version.dropped_by:
            _, dropped_by = self._sent_revisions.get(version.query, (0, 0))
            if dropped_by == version.dropped_by:
                del self._sent_revisions[version.query]
        self._first_steps.drop(key)

    # --- as a checkpoint

    def pieces(self, rows_max: int) -> Iterator[Piece]:
        """Yields steps and versions as columns; everything to be sent must have been fetched."""
        assert not self._outgoing
        pending = (
            (1 + step.bytes_total // _ROW_BYTES, (key, at_ms, step))
            for key, of_version in self._pending.items()
            for at_ms, step in sorted(of_version.items())
        )
        for count, steps in weighed_pieces(pending, rows_max):
            yield weight_of_rows(count), pending_state(steps)
        yield from self._first_steps.pieces(rows_max)
        known = (
            (1 + each.sent.nbytes // _ROW_BYTES, (key, each))
            for key, each in self._versions.items()
        )
        for count, versions in weighed_pieces(known, rows_max):
            yield weight_of_rows(count), _version_columns(versions)
        for sent in in_pieces(self._sent_revisions.items(), rows_max):
            yield (
                weight_of_rows(len(sent)),
                {
                    "standing.queries": np.array([query for query, _ in sent], np.uint64),
                    "standing.revisions": np.array(
                        [revisions for _, revisions in sent], np.int64
                    ).reshape(-1, 2),
                },
            )

    def restore(self, state: State) -> None:
        """Takes steps and versions of a checkpoint, into an empty object."""
        rows = zip(
            state["versions.keys"].tolist(),
            state["versions.complete_ms"].tolist(),
            state["versions.end_ms"].tolist(),
            pairwise(state["versions.offsets"].tolist()),
            strict=True,
        )
        for key, complete_ms, end_ms, (begin, end) in rows:
            sent_key = state["versions.told"][:, begin:end].copy()
            self._versions[key] = Version(complete_ms=complete_ms, end_ms=end_ms, sent=sent_key)
        if "versions.names" in state:
            has_names = state["versions.has_names"].tolist()
            bounds = pairwise(state["versions.offsets"].tolist())
            for key, is_known, (begin, end) in zip(
                state["versions.keys"].tolist(), has_names, bounds, strict=True
            ):
                if is_known:
                    self._versions[key].names = state["versions.names"][begin:end].copy()
        if "versions.queries" in state:
            columns = [state[f"versions.{name}"].tolist() for name in _OF_QUERIES]
            for key, query, revision, dropped_by in zip(
                state["versions.keys"].tolist(), *columns, strict=True
            ):
                version = self._versions[key]
                version.query, version.revision, version.dropped_by = query, revision, dropped_by
            sent_revisions = map(tuple, state["standing.revisions"].tolist())
            self._sent_revisions = dict(
                zip(state["standing.queries"].tolist(), sent_revisions, strict=True)
            )
        self._first_steps.restore(state)
        for key, at_ms, step in pending_steps(state):
            self._steps_of(key, self._versions[key])[at_ms] = step
            self.bytes_total += step.weigh()
            if key not in self._first_steps:
                heapq.heappush(self._due, (at_ms, key))


def _version_columns(versions: list[tuple[int, Version]]) -> State:
    sent_keys = [each.sent for _, each in versions]
    return {
        "versions.keys": np.array([key for key, _ in versions], np.uint64),
        "versions.complete_ms": np.array([each.complete_ms for _, each in versions], np.int64),
        "versions.end_ms": np.array([each.end_ms for _, each in versions], np.int64),
        "versions.offsets": np.cumsum([0, *(each.shape[1] for each in sent_keys)]),
        "versions.told": np.concatenate([np.empty((3, 0), np.uint64), *sent_keys], axis=1),
        "versions.has_names": np.array([each.names is not None for _, each in versions], np.bool_),
        "versions.names": np.concatenate([NO_IDS, *(_sent_names(each) for _, each in versions)]),
        "versions.queries": np.array([each.query for _, each in versions], np.uint64),
        "versions.revisions": np.array([each.revision for _, each in versions], np.int64),
        "versions.left_by": np.array([each.dropped_by for _, each in versions], np.int64),
    }


def _sent_names(version: Version) -> NDArray[np.uint64]:
    if version.names is None:
        return np.zeros(version.sent.shape[1], np.uint64)
    return version.names


def _named(names: QueryNames, row: int) -> QueryNames:
    """Copies one query with its subscriber alone, so as not to keep a whole record in memory."""
    begin, end = names.id_offsets[row : row + 2].tolist()
    assert names.specs is not None
    return QueryNames(
        names.handles[row : row + 1].copy(),
        names.ids[begin:end].copy(),
        np.array([0, end - begin], np.int64),
        np.zeros(1, np.uint32),
        (names.subscribers[int(names.subscriber_rows[row])],),
        (definition_of_spec(names.specs[row]),),
    )
