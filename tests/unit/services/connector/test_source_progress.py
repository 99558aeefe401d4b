"""What may be committed of a partition, and where the next reader of it goes on."""

from __future__ import annotations

import random

import pytest

from sirocco.services.connector.sources.kafka_source import Partition
from sirocco.services.connector.sources.progress import PartitionProgress, Place, place_of
from tests.support.seeds import drawn_seed

OTHER = 99


def place(
    committed: int,
    metadata: str | None = None,
    low: int = 0,
    high: int = 100,
    earliest: bool = True,
) -> Place:
    return place_of(committed, metadata, low, high, earliest=earliest, new_session=OTHER)


def test_a_commit_is_read_as_it_was_written() -> None:
    made = Place(50, 0xFEDCBA9876543210, 47)
    assert place(50, made.metadata) == made


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (place(-1001), Place(0, OTHER, 0)),
        (place(-1001, low=20), Place(20, OTHER, 20)),
        (place(-1001, earliest=False), Place(100, OTHER, 100)),
        # Somebody has set the group back.
        (place(30, ""), Place(30, OTHER, 30)),
        (place(30, None), Place(30, OTHER, 30)),
        (place(30, "of another program"), Place(30, OTHER, 30)),
        (place(30, Place(30, 5, 31).metadata), Place(30, OTHER, 30)),
        # Another topic of the same name.
        (place(101, Place(101, 5, 101).metadata, low=3), Place(3, OTHER, 3)),
        # The log has thrown away more than a request can skip.
        (
            place(5, Place(5, 5, 5).metadata, low=1 << 31, high=1 << 32),
            Place(5, OTHER, 5),
        ),
        (place(5, Place(5, 5, 5).metadata, low=50), Place(5, 5, 5)),
    ],
)
def test_where_the_next_reader_goes_on(found: Place, wanted: Place) -> None:
    assert found == wanted


def test_nothing_is_committed_before_it_is_acknowledged_or_put_aside() -> None:
    one = PartitionProgress(Place(10, 7, 10))
    one.read(20)
    one.published(18)
    assert one.place(10) == Place(10, 7, 10)
    assert one.place(15) == Place(15, 7, 15)
    # Records 18 and 19 hold nothing that is published.
    assert one.place(18) == Place(20, 7, 18)
    one.put_aside(12)
    one.put_aside(19)
    assert one.place(18) == Place(12, 7, 12)
    one.is_aside(12)
    assert one.place(18) == Place(19, 7, 18)
    one.is_aside(19)
    assert one.place(18) == Place(20, 7, 18)


@pytest.mark.parametrize("run", range(50))
def test_every_record_is_published_once_whatever_dies(run: int) -> None:
    """Against a router that takes the run of numbers without gaps, each once."""
    rng = random.Random(drawn_seed())
    # Offset → whether it can be published; offsets have gaps.
    log = {offset: rng.random() < 0.8 for offset in range(200) if rng.random() < 0.7}
    taken: dict[int, int] = {}
    last: dict[int, int] = {}
    aside: list[int] = []
    commit: tuple[int, str | None] = (-1001, None)
    sessions = iter(range(1, 1_000))
    while True:
        begin = place_of(*commit, 0, 200, earliest=True, new_session=next(sessions))
        commit = (begin.position, begin.metadata)
        one = PartitionProgress(begin)
        first, acknowledged = begin.number + 1, begin.number
        for offset in range(begin.position, 200):
            if offset not in log:
                continue
            if log[offset]:
                number = offset + 1
                one.published(number)
                known = last.get(begin.session, begin.number)
                assert first <= known + 1, "a gap: the router would drop it"
                if number > known:
                    taken[offset] = taken.get(offset, 0) + 1
                    last[begin.session] = number
                first = number + 1
            else:
                one.put_aside(offset)
                if rng.random() < 0.9:
                    aside.append(offset)
                    one.is_aside(offset)
            one.read(offset + 1)
            if rng.random() < 0.5:
                acknowledged = max(acknowledged, one.published_to - rng.choice((0, 0, 3)))
                acknowledged = min(acknowledged, one.published_to)
            if rng.random() < 0.3:
                found = one.place(acknowledged)
                commit = (found.position, found.metadata)
            if rng.random() < 0.05:
                break
        else:
            break
    assert taken == {offset: 1 for offset, is_good in log.items() if is_good}
    assert set(aside) <= {offset for offset, is_good in log.items() if not is_good}


class CountedRecord:
    """A record that counts how often its place is looked at."""

    looks = 0

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        CountedRecord.looks += 1
        return self._offset


def test_the_record_of_a_refused_object_is_found_in_few_looks() -> None:
    """A cluster may refuse all objects of a batch: of 5,000 each was looked for from the first."""
    one = Partition(PartitionProgress(Place(0, 1, 0)), None)  # type: ignore[arg-type]
    for begin in (0, 1_000):
        records = [CountedRecord(offset) for offset in range(begin, begin + 1_000, 2)]
        one.waiting.append((records[-1].offset() + 1, records, 1))
    CountedRecord.looks = 0
    for offset in range(0, 2_000, 2):
        assert one.record(offset + 1)._offset == offset
    assert CountedRecord.looks < 1_000 * 12
