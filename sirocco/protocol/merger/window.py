"""What a merger has read of one Kafka partition of `partials`, and not yet sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.messages import Found, Message, Progress
from sirocco.protocol.contract.positions import Reached
from sirocco.protocol.contract.record_sizes import RecordLimits
from sirocco.protocol.merger.delivery_records import deliveries, list_deliveries
from sirocco.protocol.merger.list_batch import ListBatch, bytes_of_lists
from sirocco.protocol.merger.live_lists import LiveLists
from sirocco.protocol.merger.state_pieces import InTurns

# What a part takes in memory besides its columns' contents.
_PART_BYTES = 4_096

# What takes as long as a step, some 0.1 ms: plain matches, candidates of knn queries, and bytes of
# a record of steps, which are copied.
_MATCHES_A_STEP = 256
_CANDIDATES_A_STEP = 32
_BYTES_A_STEP = 16_384

# What the merge of some knn lists takes.
MERGE_WEIGHT = 256


@dataclass(slots=True, kw_only=True)
class Window:
    """State of one owned Kafka partition of `partials`.

    Attributes:
        read_offset: offset after the last record read.
        unread: offsets of records that are read and not yet taken, these, and their bytes.
        unread_bytes: about how many these are.
        input_offset: offset after the last record taken; some steps that it completes may be left.
        reached: how far the records of each slot have been taken.
        lists: answers that are lists.
        progress: the last written progress; it is committed unless a transaction is open.
        written_ms: when it was written.
        durable_offset: of the newest checkpoint that a successor may start from; -1 for none.
        floor_offset: `partials` may be truncated below it: no checkpoint before it can be used.
        closed: messages to send before all others: the end of a query follows them, or more steps.
        closed_bytes: about how many bytes these take.
        parts, matches, bytes_waiting: what waits to be sent, without lists that are not closed.
        is_merging: its knn lists are being merged, and nothing else is taken.
        is_full: too much waits, and nothing is read.
        worked: number of the turn in which something was taken last.
        committing: number of the transaction that is being written, 0 while there is none.
        begun: number of a transaction of which some parts are written, 0 without one.
        begun_bytes: of these parts.
        saving: makes the state at the offset of the last transaction; nothing else is taken.
        saved: that state, declared once the transaction is committed; None: no other one is due.
        saved_ms, saved_changes: time of the last state taken, and the count of changes then.
        is_based: whether the first checkpoint has been asked for.
        is_replaying: a predecessor has sent what is read now; it is read for the lists alone.
        retained: what is kept in `deliveries`: (end offset, bytes) of each window, oldest first.
    """

    input_offset: int
    read_offset: int
    reached: Reached
    lists: LiveLists
    progress: Progress
    written_ms: int
    durable_offset: int = -1
    floor_offset: int = 0
    unread: deque[tuple[int, Found, int]] = field(default_factory=deque)
    unread_bytes: int = 0
    worked: int = 0
    closed: list[Message] = field(default_factory=list)
    closed_bytes: int = 0
    parts: list[Found] = field(default_factory=list)
    matches: int = 0
    bytes_waiting: int = 0
    is_merging: bool = False
    is_full: bool = False
    committing: int = 0
    begun: int = 0
    begun_bytes: int = 0
    saving: InTurns | None = None
    saved: State | None = None
    saved_ms: int = 0
    saved_changes: int = 0
    is_based: bool = False
    is_replaying: bool = False
    retained: deque[tuple[int, int]] = field(default_factory=deque)
    retained_bytes: int = 0

    @property
    def written_offset(self) -> int:
        """Offset before which everything has been sent, or is being sent."""
        return self.progress.input_offset

    @property
    def is_held(self) -> bool:
        """Whether the first lists wait for the first checkpoint."""
        return self.lists.is_live and self.durable_offset < 0

    @property
    def has_content(self) -> bool:
        """Whether anything waits to be sent, or is sent and not committed."""
        return bool(self.begun or self.closed or self.parts) or self.lists.has_output

    @property
    def has_work(self) -> bool:
        """Whether there are records to take, or lists and steps that the last ones complete."""
        is_busy = self.is_merging or self.lists.is_completing or self.saving is not None
        return bool(self.unread) or is_busy

    @property
    def bytes_outgoing(self) -> int:
        """About how many bytes wait to be sent."""
        return self.bytes_waiting + self.lists.bytes_waiting

    def add(self, offset: int, found: Found) -> None:
        """Adds a record that was read."""
        size = bytes_of(found)
        self.unread.append((offset, found, size))
        self.unread_bytes += size
        self.read_offset = offset + 1

    def pop(self) -> tuple[int, Found]:
        """Returns the first record that is not taken, with its offset, and removes it."""
        offset, found, size = self.unread.popleft()
        self.unread_bytes -= size
        return offset, found

    def begin_merging(self) -> bool:
        """Begins to merge knn lists if that takes several turns; returns whether it does."""
        self.is_merging |= self.lists.knn.is_long_merge
        return self.is_merging

    def merge_some(self, limits: RecordLimits) -> None:
        """Merges some knn lists, and makes messages of those that changed."""
        lists = self.lists
        self.is_merging = lists.knn.merge_some(sends=not self.is_replaying)
        if self.is_replaying:
            return
        self._close(lists.knn.take_merged(), limits)
        if not self.is_merging and lists.ends.has_output:
            self.close_all(limits)

    def save_some(self, weight_max: int) -> int:
        """Makes some of the state that is to be saved; returns the weight of what was done."""
        assert self.saving is not None
        weight = 0
        while weight < weight_max:
            try:
                weight += next(self.saving)
            except StopIteration as end:
                self.saving, self.saved = None, end.value
                return weight
        return weight

    def close_steps(self, limits: RecordLimits) -> None:
        """Makes messages of the steps completed so far: joining all at once would take long."""
        self._close(self.lists.steps.flush(), limits)

    def _close(self, batches: Sequence[ListBatch], limits: RecordLimits) -> None:
        size = sum(int(bytes_of_lists(batch).sum()) for batch in batches)
        self.bytes_waiting += size
        self.closed_bytes += size
        self.closed += list_deliveries(batches, limits)

    def close_all(self, limits: RecordLimits) -> None:
        """Makes messages of all that waits to be sent: later ones follow these."""
        self.closed, self.closed_bytes = self.take_messages(limits), self.bytes_waiting

    def take_closed(self) -> list[Message]:
        """Takes the messages that are made, in order: a part of the next transaction."""
        self.bytes_waiting -= self.closed_bytes
        messages, self.closed, self.closed_bytes = self.closed, [], 0
        return messages

    def take_messages(self, limits: RecordLimits) -> list[Message]:
        """Takes the messages that wait to be sent, in order."""
        lists = list_deliveries(self.lists.flush(), limits)
        messages = [*self.closed, *deliveries(self.parts, limits), *lists]
        self.closed, self.closed_bytes, self.parts = [], 0, []
        return messages


def bytes_of(part: Found) -> int:
    """Returns about how many bytes a part takes in memory."""
    steps, queries = part.steps, part.queries
    size = _PART_BYTES + part.objects.bytes_total + len(queries.ids) + 16 * len(part.matches)
    if queries.specs is not None:
        size += sum(map(len, queries.specs))
    if steps is not None:
        size += len(steps.terms) + 16 * len(steps.counts) + steps.frequencies.nbytes
    return size


def weight_of(found: Found) -> int:
    """Returns how much of a turn a record takes, in what a step takes."""
    if found.queries.specs is None:
        return len(found.matches) // _MATCHES_A_STEP
    steps = 0 if found.steps is None else len(found.steps)
    rows = max(steps, len(found.queries))
    return rows + len(found.matches) // _CANDIDATES_A_STEP + bytes_of(found) // _BYTES_A_STEP
