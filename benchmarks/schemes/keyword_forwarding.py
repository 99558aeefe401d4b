"""Tornado's forward and broadcast (3.1; 6.2, Figure 10b), by the machines of our routers.

A query arrives at one routing unit, which sends it to the slots. All units have to know its
keyword: either the unit sends the query to all others (broadcast), each of which derives the
entries of Tornado's summaries; or it sends them only the keywords that are new to a slot (forward),
as the owner of a registry partition does to all intake partitions (docs/adr/0018).

The services' own code is timed: the query's JSON is parsed, its record written and read, the owner
places it and writes the records of slots, and slots take these. The omitted parts are the same for
both
ways: gRPC and the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import orjson

from benchmarks.schemes.timing import seconds_of
from sirocco.codec.hops import encode, read_record
from sirocco.index.routing.keyword_slots import joined, set_of, words_of
from sirocco.model.query import parse_query, query_handle
from sirocco.protocol.contract.effects import Append, Effect, State
from sirocco.protocol.contract.messages import NO_REVISION, Change, Installed, Keywords, Message
from sirocco.protocol.evaluator.slot.slot import Slot
from sirocco.protocol.evaluator.standing.query_families import RANGE
from sirocco.protocol.router.objects.keyword_filter import KeywordFilter
from sirocco.protocol.router.queries.keyword_summary import KeywordSummary, keys_of_queries
from sirocco.protocol.router.queries.query_placement import Stage, place_new
from sirocco.protocol.router.queries.registry_partition import Registry
from sirocco.schemes.map.routing import RoutingArrays

# Tornado, Table 1.
UNITS = (1, 3, 5, 7, 10, 12)

# Queries that arrive together: a busy routing unit gets about this many in a poll.
BATCH = 1_000
PASSES = 2

_VERSION = _EPOCH = 1
_PARTITION = 0

Record = tuple[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarding:
    """CPU time of a query, and bytes sent between routing units.

    Attributes:
        standing: Queries registered before the counted ones.
        queries: Queries that are counted.
        own_us: Both ways: parsing it, writing and reading its record, placing it, sending it to
            slots.
        note_us: Broadcast: deriving and storing its keyword, at the unit of its arrival.
        receive_us: Broadcast: reading its record and the same, at each other unit.
        derive_us: Forward: deriving its keyword and whether it is new.
        write_us: Forward: writing the record of new keywords, for each unit.
        take_us: Forward: reading that record and storing it, at each unit.
        again_us: As `write_us` and `take_us` together, if known keywords were sent as well.
        slots_us: Reading the records of slots and taking their content, all slots together.
        new_share: Forward: keywords in these records over queries.
        query_bytes: Broadcast: sent to each other unit.
        keyword_bytes: Forward: sent to each unit.
    """

    standing: int
    queries: int
    own_us: float
    note_us: float
    receive_us: float
    derive_us: float
    write_us: float
    take_us: float
    again_us: float
    slots_us: float
    new_share: float
    query_bytes: float
    keyword_bytes: float

    def broadcast_us(self, units: int) -> float:
        """Returns the CPU time of a query at all units together."""
        return self.own_us + self.note_us + (units - 1) * self.receive_us

    def queries_per_s(self, us_per_query: float, units: int, slots: int) -> float:
        """Returns the capacity of this many units and evaluators, each on a core of its own."""
        return 1e6 * min(units / us_per_query, slots / self.slots_us)

    def forward_us(self, units: int) -> float:
        """Returns the CPU time of a query at all units together."""
        return self.own_us + self.derive_us + units * (self.write_us + self.take_us)


def forwarding(routing: RoutingArrays, lines: Sequence[bytes]) -> Forwarding:
    """Registers queries both ways; those of the second half are counted.

    Args:
        routing: Of the map.
        lines: Queries as lines of JSON.
    """
    batches = [lines[begin : begin + BATCH] for begin in range(0, len(lines), BATCH)]
    first = len(batches) // 2
    runs = [Run(routing) for _ in range(PASSES)]
    clocks: list[list[dict[str, float]]] = [[run.batch(b) for b in batches] for run in runs]
    # The best pass of each step of each batch: the machine is shared.
    best = {
        name: sum(min(each[at][name] for each in clocks) for at in range(first, len(batches)))
        for name in clocks[0][0]
    }
    count = sum(len(batch) for batch in batches[first:])
    sums = runs[0].sums[first:]
    return Forwarding(
        standing=sum(len(batch) for batch in batches[:first]),
        queries=count,
        **{f"{name}_us": 1e6 * seconds / count for name, seconds in best.items()},
        new_share=sum(new for new, _, _ in sums) / count,
        query_bytes=sum(size for _, size, _ in sums) / count,
        keyword_bytes=sum(size for _, _, size in sums) / count,
    )


class Run:
    """Registers batch after batch.

    Attributes:
        sums: Of each batch (new keywords, bytes of the queries, bytes of the new keywords).
    """

    def __init__(self, routing: RoutingArrays) -> None:
        self._routings = {_VERSION: routing}
        self._stage = Stage(base=_VERSION)
        self._plain = Registry(partition=_PARTITION, offset=0, floor=0, epoch=_EPOCH)
        self._forwarding = Registry(partition=_PARTITION, offset=0, floor=0, epoch=_EPOCH)
        self._forwarding.keyword_summary = KeywordSummary(
            _PARTITION, _EPOCH, routing.slots, 1, self._forwarding.live
        )
        self._slots = [Slot(number, 1) for number in range(routing.slots)]
        for slot in self._slots:
            slot.open(0, 0, 1, 0)
        # One unit that gets the new keywords, one that gets all keywords, one that gets all
        # queries, and one at which the queries arrive.
        summaries = [KeywordFilter(routing.slots, 1) for _ in range(4)]
        self._new_keywords, self._all_keywords, self._all_queries, self._arrivals = summaries
        self._words = words_of(routing.slots)
        self._offset = 0
        self.sums: list[tuple[int, int, int]] = []

    def batch(self, lines: Sequence[bytes]) -> dict[str, float]:
        """Takes queries in all ways; returns the seconds of each step."""
        write_s, records = seconds_of(partial(_written, lines))
        read_s, read = seconds_of(partial(self._read, records))
        changes = [change for _, change in read]
        place_s, plain = seconds_of(partial(self._plain.read, read, self._routings))
        derive_s, forwarded = seconds_of(partial(self._forwarding.read, read, self._routings))
        install_s, installs = seconds_of(partial(_records_of, plain, Installed))
        slots_s, _ = seconds_of(partial(self._install, installs))
        note_s, noted = seconds_of(partial(self._note, self._arrivals, changes))
        # The codec's cache of its own writes holds nothing of the owner's records by now.
        receive_s, _ = seconds_of(partial(self._receive, records))
        key_s, reported = seconds_of(partial(_records_of, forwarded, Keywords))
        take_s, new = seconds_of(partial(self._take, self._new_keywords, reported))
        again_s, _ = seconds_of(partial(self._forward_all, noted))
        self._offset += len(lines)
        self.sums.append((new, _size(records), _size(reported)))
        return {
            "own": write_s + read_s + place_s + install_s,
            "note": note_s,
            "receive": receive_s,
            # The same owner, once without and once with units to inform.
            "derive": max(0.0, derive_s - place_s),
            "write": key_s,
            "take": take_s,
            "again": again_s,
            "slots": slots_s,
        }

    def _read(self, records: list[tuple[int, Record]]) -> list[tuple[int, Change]]:
        return [
            (self._offset + row, change)
            for row, (_, (method, value)) in enumerate(records)
            if isinstance(change := read_record(method, value), Change)
        ]

    def _install(self, records: list[tuple[int, Record]]) -> None:
        for number, (method, value) in records:
            message = read_record(method, value)
            assert isinstance(message, Installed)
            self._slots[number].take([(self._slots[number].offset, message)])

    def _receive(self, records: list[tuple[int, Record]]) -> None:
        self._note(self._all_queries, [change for _, change in self._read(records)])

    def _note(self, summaries: KeywordFilter, changes: list[Change]) -> Keywords:
        """Stores the slots' needs at a unit that gets the queries themselves (Tornado 3.1)."""
        placed = place_new(changes, self._stage, self._routings)
        keys = keys_of_queries(changes, placed.rows, self._routings[_VERSION])
        known: dict[tuple[int, ...], np.ndarray] = {}
        for slots in placed.slots:
            if slots not in known:
                known[slots] = set_of(slots, self._words)
        sets = [known[slots] for own, slots in zip(keys, placed.slots, strict=True) for _ in own]
        flat = np.array([key for own in keys for key in own], np.uint64)
        terms, sets_of_terms = joined(flat, np.array(sets, np.uint64))
        reported = Keywords(partition=_PARTITION, epoch=_EPOCH, terms=terms, slots=sets_of_terms)
        summaries.add(reported)
        return reported

    def _forward_all(self, keywords: Keywords) -> None:
        self._take(self._all_keywords, _records([(_PARTITION, keywords)]))

    @staticmethod
    def _take(summaries: KeywordFilter, records: list[tuple[int, Record]]) -> int:
        """Stores keywords at a unit; returns how many."""
        count = 0
        for _, (method, value) in records:
            reported = read_record(method, value)
            assert isinstance(reported, Keywords)
            summaries.add(reported)
            count += len(reported.terms)
        return count

    @property
    def standing(self) -> list[int]:
        """Returns the number of standing queries of each slot."""
        return [len(slot.standing.families[RANGE].table) for slot in self._slots]

    @property
    def states(self) -> list[State]:
        """Returns the state of each unit: they are equal, if all is right."""
        units = (self._new_keywords, self._all_keywords, self._all_queries, self._arrivals)
        return [unit.state() for unit in units]


def _written(lines: Sequence[bytes]) -> list[tuple[int, Record]]:
    """Parses queries and writes their records, as the unit of their arrival."""
    changes: list[tuple[int, Message]] = []
    for line in lines:
        query = parse_query(orjson.loads(line))
        handle = query_handle(query.id)
        changes.append(
            (
                _PARTITION,
                Change(
                    handle=handle,
                    query=query,
                    subscriber="s",
                    start_ms=0,
                    expected_revision=NO_REVISION,
                    digest=handle,
                    epoch=_EPOCH,
                ),
            )
        )
    return _records(changes)


def _records_of(effects: list[Effect], kind: type) -> list[tuple[int, Record]]:
    """Writes the messages of a kind, each with its Kafka partition."""
    appends = [effect for effect in effects if isinstance(effect, Append)]
    chosen = [(each.partition, each.message) for each in appends if isinstance(each.message, kind)]
    return _records(chosen)


def _records(messages: Sequence[tuple[int, Message]]) -> list[tuple[int, Record]]:
    written = []
    for partition, message in messages:
        method, request = encode(message)
        written.append((partition, (method, request.SerializeToString())))
    return written


def _size(records: list[tuple[int, Record]]) -> int:
    return sum(len(value) for _, (_, value) in records)
