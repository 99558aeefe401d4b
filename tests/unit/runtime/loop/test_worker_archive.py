"""The loop and the archive: saves, loads, retries, and what is given up."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sirocco.codec.checkpoint import state_pieces
from sirocco.codec.slices import write_slice
from sirocco.index.store.sealing import seal
from sirocco.protocol.contract.control_records import CheckpointTaken, Granted
from sirocco.protocol.contract.effects import (
    ChangeRequests,
    Committed,
    ControlRead,
    Draining,
    Effect,
    EndsFound,
    Event,
    Fence,
    FindEnds,
    Load,
    Loaded,
    LoadSlices,
    SaveCheckpoint,
    SlicesLoaded,
    Transact,
    Unfollow,
)
from sirocco.protocol.contract.messages import (
    CONTROL,
    INTAKE,
    SLOTS,
)
from sirocco.protocol.evaluator.slot.archived_slices import slice_name
from sirocco.runtime.loop.checkpoints import WARM_MS, Checkpoints, Loads, WarmSlices
from sirocco.runtime.loop.limits import LoopLimits
from sirocco.runtime.process.retries import RETRIES_MAX
from sirocco.transport.archive import MemoryArchive
from sirocco.transport.errors import (
    AppendFailed,
    BlobExists,
    BlobNotFound,
    TransportUnavailable,
)
from sirocco.transport.memory_log import MemoryLog
from tests.support.scripted_machine import (
    CONTROL_READ,
    ELECTED,
    TO_ANOTHER,
    WAIT_S,
    Script,
    append,
    fill,
    messages,
    on,
    progress,
    running,
)
from tests.support.values import installed_of
from tests.support.waiting import eventually
from tests.unit.codec.test_slice_files import made

QUICK = LoopLimits(save_again_ms=20, load_again_ms_max=20)


@pytest.fixture(autouse=True)
def _records(log: MemoryLog) -> None:
    for partition in range(log.partitions(INTAKE)):
        fill(log, INTAKE, partition, 9)


class FullArchive(MemoryArchive):
    """An archive that has no room until a test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = True
        self.tries = 0

    def write(self, name: str, *contents: bytes | memoryview) -> None:
        self.tries += 1
        if self.is_full:
            raise TransportUnavailable("no space left on device")
        super().write(name, *contents)


def test_an_archive_without_room_ends_nothing_and_is_tried_again(log: MemoryLog) -> None:
    # init: three states, two of the same Kafka partition
    archive, state = FullArchive(), {"rows": np.arange(5)}
    append(log, CONTROL, ELECTED)
    saves = [
        SaveCheckpoint(topic=SLOTS, partition=partition, epoch=3, offset=offset, state=state)
        for partition, offset in ((1, 40), (1, 50), (0, 7))
    ]

    # test
    script = Script(lambda e: list(saves) if e == ControlRead(0, ELECTED) else [])
    with running(log, script, archive, limits=QUICK) as worker:
        eventually(lambda: archive.tries > 8 and worker.unsaved == 2)
        assert worker.failure is None
        archive.is_full = False
        eventually(lambda: not worker.unsaved and len(messages(log, CONTROL)) == 3)

    # check: of each Kafka partition the newest, once
    taken = [m for m in messages(log, CONTROL) if isinstance(m, CheckpointTaken)]
    assert sorted((each.partition, each.offset) for each in taken) == [(0, 7), (1, 50)]
    assert worker.failure is None


@pytest.mark.parametrize(("held", "is_taken"), [(300, True), (299, False)])
def test_a_slice_that_an_owner_of_another_version_left_is_as_good(
    log: MemoryLog, held: int, is_taken: bool
) -> None:
    # init: that owner wrote the slice and ended before it could save the state
    rows, archive = made(), MemoryArchive()
    sink = pa.BufferOutputStream()
    left = write_slice(seal(rows.take(np.arange(held))))
    pq.write_table(pq.read_table(pa.BufferReader(left)), sink, compression="gzip")
    archive.write("slices/a", sink.getvalue().to_pybytes())
    save = SaveCheckpoint(
        topic=SLOTS,
        partition=1,
        epoch=3,
        offset=40,
        state={"rows": np.arange(5)},
        slices=(("slices/a", seal(rows)),),
    )

    # test
    append(log, CONTROL, ELECTED)
    script = Script(lambda e: [save] if e == ControlRead(0, ELECTED) else [])
    with running(log, script, archive) as worker:
        eventually(lambda: len(messages(log, CONTROL)) == 2 or worker.failure)

    # check: other objects are not taken for these
    assert isinstance(worker.failure, BlobExists) is not is_taken
    taken = [m for m in messages(log, CONTROL) if isinstance(m, CheckpointTaken)]
    assert [each.offset for each in taken] == ([40] if is_taken else [])


def test_a_save_of_what_another_owns_by_now_is_not_tried_again(log: MemoryLog) -> None:
    # It would hold the objects of its slot in memory for as long as the archive has no room.
    archive = FullArchive()
    append(log, CONTROL, ELECTED)
    saves = [
        SaveCheckpoint(
            topic=SLOTS, partition=each, epoch=3, offset=40, state={"rows": np.arange(5)}
        )
        for each in (0, 1)
    ]
    script = Script(lambda e: list(saves) if e == ControlRead(0, ELECTED) else [])
    with running(log, script, archive, limits=QUICK) as worker:
        eventually(lambda: worker.unsaved == 2)
        append(log, CONTROL, Granted(0, SLOTS, 0, "m"))
        append(log, CONTROL, ELECTED)
        # Void: another leads by now.
        append(log, CONTROL, Granted(0, SLOTS, 0, "another"))
        append(log, CONTROL, Granted(2, SLOTS, 1, "another"))
        script.wait(ControlRead, 5)
        eventually(lambda: worker.unsaved == 1)
        # A try that was under way comes after these.
        tries = archive.tries
        eventually(lambda: archive.tries > tries + 3)
        archive.is_full = False
        eventually(lambda: not worker.unsaved)
    taken = [m for m in messages(log, CONTROL) if isinstance(m, CheckpointTaken)]
    assert [each.partition for each in taken] == [0]


def test_a_load_without_effect_does_not_keep_a_process_that_has_to_end(log: MemoryLog) -> None:
    append(log, CONTROL, ELECTED)
    script = Script(on(ControlRead, Load(SLOTS, 0, 1, "a", 3)))
    with running(log, script, AwayArchive(), member="loading") as worker:
        script.wait(ControlRead)
        worker.fail(AppendFailed("cut off"))
        eventually(lambda: not worker.is_alive)
        eventually(
            lambda: not any(each.name.startswith("loading-") for each in threading.enumerate())
        )


class AwayArchive(MemoryArchive):
    """An archive that cannot be read until a test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = True
        self.tries: Counter[str] = Counter()

    def read(self, name: str) -> bytes:
        self.tries[name] += 1
        if self.is_away:
            raise TransportUnavailable("away")
        return super().read(name)


class SilentArchive(MemoryArchive):
    """An archive that does not answer reads until a test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        self.answers = threading.Event()

    def read(self, name: str) -> bytes:
        self.asked.set()
        assert self.answers.wait(WAIT_S)
        raise TransportUnavailable("no answer in time")


def saved(archive: MemoryArchive, name: str) -> None:
    archive.write(name, *state_pieces({"rows": np.arange(5)}))


def loads(count: int) -> Callable[[Event], list[Effect]]:
    """At the first election it loads the states of `count` intake partitions."""
    wanted: list[Effect] = [Load(INTAKE, each, 7, f"state-{each}", 3) for each in range(count)]
    return lambda event: wanted if event == CONTROL_READ else []


def test_an_archive_that_is_away_ends_nothing_and_what_was_granted_is_loaded_afterwards(
    log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    # init: several loads
    archive = AwayArchive()
    for partition in range(4):
        saved(archive, f"state-{partition}")
    append(log, CONTROL, ELECTED)
    script = Script(loads(4), on(ChangeRequests, Fence(0), Transact(0, 1, (progress(5),))))
    with running(log, script, archive, limits=QUICK) as worker:
        # test: all have been tried more often than the limit of other retries
        eventually(
            lambda: (
                worker.failure
                or all(archive.tries[f"state-{each}"] > 2 * RETRIES_MAX for each in range(4))
            )
        )
        assert worker.failure is None

        # check: other work is done meanwhile, and this one afterwards, once
        worker.post(ChangeRequests(1, 0, ()))
        script.wait(Committed)
        archive.is_away = False
        loaded = script.wait(Loaded, 4)
        assert sorted((each.partition, each.offset, each.epoch) for each in loaded) == [
            (each, 3, 7) for each in range(4)
        ]
        # Nothing is loaded again: the loop has done another piece of work since.
        tries = archive.tries.total()
        worker.post(ChangeRequests(2, 0, ()))
        script.wait(Committed, 2)
        assert archive.tries.total() == tries
    assert worker.failure is None
    reported = [record.__dict__ for record in caplog.records]
    fields = [each["fields"] for each in reported if each.get("event") == "not_loaded"]
    assert {"topic": INTAKE, "partition": 3, "reason": "away"} in fields


def test_an_archive_that_does_not_answer_holds_up_loads_alone(log: MemoryLog) -> None:
    archive = SilentArchive()
    append(log, CONTROL, ELECTED)
    script = Script(loads(4), on(ChangeRequests, Fence(0), Transact(0, 1, (progress(5),))))
    with running(log, script, archive) as worker:
        assert archive.asked.wait(WAIT_S)
        worker.post(ChangeRequests(1, 0, ()))
        script.wait(Committed)
        # Nor does a process that has to end wait for it.
        assert worker.stop(3)
        archive.answers.set()
    assert worker.failure is None


def test_a_load_of_a_partition_lost_in_between_is_given_up(log: MemoryLog) -> None:
    archive = AwayArchive()
    append(log, CONTROL, ELECTED)
    again = Load(INTAKE, 0, 9, "newer", 4)
    script = Script(
        loads(2),
        lambda e: [Unfollow(INTAKE, 0)] if e == ControlRead(1, TO_ANOTHER) else [],
        lambda e: [again] if e == ControlRead(2, Granted(0, INTAKE, 0, "m")) else [],
    )
    with running(log, script, archive, limits=QUICK) as worker:
        # test: the state would be gone, which ends a process that needs it
        eventually(lambda: archive.tries["state-0"] > 2)
        append(log, CONTROL, TO_ANOTHER)
        script.wait(ControlRead, 2)
        given_up = worker.look(lambda: archive.tries["state-0"]).result(WAIT_S)
        tries = archive.tries["state-1"]
        eventually(lambda: archive.tries["state-1"] > tries + 5)
        # A try that was under way may count.
        assert archive.tries["state-0"] <= given_up + 1

        # check: granted again it is loaded anew
        saved(archive, "newer")
        saved(archive, "state-1")
        append(log, CONTROL, Granted(0, INTAKE, 0, "m"))
        eventually(lambda: archive.tries["newer"])
        archive.is_away = False
        loaded = script.wait(Loaded, 2)
        assert sorted((each.partition, each.epoch) for each in loaded) == [(0, 9), (1, 7)]
    assert worker.failure is None


def test_draining_gives_up_loads_and_leaves_checkpoints_all_the_same(log: MemoryLog) -> None:
    # init: one waits for a retry, and one is under way that will find nothing
    class Half(SilentArchive):
        def read(self, name: str) -> bytes:
            if name == "state-0":
                raise TransportUnavailable("away")
            self.asked.set()
            assert self.answers.wait(WAIT_S)
            return MemoryArchive.read(self, name)

    archive, state = Half(), {"rows": np.arange(5)}
    append(log, CONTROL, ELECTED)
    drained = on(
        Draining,
        SaveCheckpoint(topic=SLOTS, partition=1, epoch=3, offset=40, state=state),
        Load(INTAKE, 2, 7, "late", 3),
    )
    script = Script(loads(2), drained)
    with running(log, script, archive) as worker:
        assert archive.asked.wait(WAIT_S)

        # test
        stopping = threading.Thread(target=worker.stop, args=(WAIT_S,))
        stopping.start()
        script.wait(Draining)
        archive.answers.set()
        stopping.join(WAIT_S)
        assert not worker.is_alive

    # check
    assert worker.failure is None
    taken = [m for m in messages(log, CONTROL) if isinstance(m, CheckpointTaken)]
    assert [each.offset for each in taken] == [40]


def test_loads_are_tried_again_after_pauses_that_grow_up_to_a_bound() -> None:
    waiting, load, now = Loads(), Load(INTAKE, 0, 7, "a", 3), 0
    waiting.begun(load)
    pauses = []
    for _ in range(12):
        waiting.failed(load, now)
        began = now
        while not (due := waiting.due(now)):
            now += 10
        assert due == [load]
        assert not waiting.due(now + 60_000)
        pauses.append(now - began)
    assert pauses[0] <= 100
    assert all(2_500 <= pause <= 5_000 for pause in pauses[6:])
    # A restarted load is another one, even if equal.
    newer = Load(INTAKE, 0, 7, "a", 3)
    waiting.begun(newer)
    assert waiting.is_wanted(newer)
    assert not waiting.is_wanted(load)
    waiting.failed(newer, now)
    waiting.ended(INTAKE, 0)
    assert not waiting.due(now + 60_000)


def test_ends_of_an_unreachable_log_are_requested_until_it_is_back(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, asked = MemoryLog.bounds, [0]

    def bounds(log: MemoryLog, topic: str, partition: int) -> tuple[int, int]:
        if topic == SLOTS:
            asked[0] += 1
            if asked[0] <= 2 * RETRIES_MAX:
                raise TransportUnavailable("away")
        return original(log, topic, partition)

    monkeypatch.setattr(MemoryLog, "bounds", bounds)
    append(log, CONTROL, ELECTED)
    script = Script(on(ControlRead, FindEnds(SLOTS, 2)))
    with running(log, script, limits=QUICK) as worker:
        (found,) = script.wait(EndsFound)
        assert worker.failure is None
    assert found.ends.tolist() == [0, 0]


def test_how_far_logs_go_is_found(log: MemoryLog) -> None:
    for _ in range(3):
        append(log, SLOTS, installed_of(0, []), 1)
    append(log, CONTROL, ELECTED)
    script = Script(on(ControlRead, FindEnds(SLOTS, 2)))
    with running(log, script):
        (found,) = script.wait(EndsFound)
    assert found.ends.tolist() == [0, 3]


SPOILT: dict[str, Callable[[MemoryArchive], Load]] = {
    "blob is missing": lambda _: Load(INTAKE, 1, 7, "gone", 3),
    "blob is cut short": lambda archive: _kept(archive, state_bytes()[:-9], 3),
    "blob has another byte": lambda archive: _kept(archive, _turned(state_bytes()), 3),
    "blob is no state": lambda archive: _kept(archive, b"SIRSTA", 3),
    "offset is behind the log's end": lambda archive: _kept(archive, state_bytes(), 10),
    "offset is of another world": lambda archive: _kept(archive, state_bytes(), 1 << 40),
}


def state_bytes() -> bytes:
    return b"".join(state_pieces({"rows": np.arange(5)}))


def _turned(contents: bytes) -> bytes:
    return contents[:-3] + bytes([contents[-3] ^ 1]) + contents[-2:]


def _kept(archive: MemoryArchive, contents: bytes, offset: int) -> Load:
    archive.write("spoilt", contents)
    return Load(INTAKE, 1, 7, "spoilt", offset)


@pytest.mark.parametrize("name", SPOILT)
def test_a_state_that_is_of_no_use_stops_its_partition_alone(
    name: str, log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    # init: one good state, one useless state
    archive = MemoryArchive()
    saved(archive, "good")
    spoilt = SPOILT[name](archive)
    append(log, CONTROL, ELECTED)
    wanted: list[Effect] = [spoilt, Load(INTAKE, 0, 7, "good", 3)]
    script = Script(lambda event: wanted if event == CONTROL_READ else [])
    with running(log, script, archive, limits=QUICK) as worker:
        # test: it is retried repeatedly, and the other one is loaded
        eventually(
            lambda: (
                worker.failure or [r for r in caplog.records if "is not processed" in r.message][3:]
            )
        )
        assert worker.failure is None
        assert [each.partition for each in script.wait(Loaded)] == [0]
        assert worker.unusable == 1

        # check: a later state of a former owner is taken instead
        archive.write("later", state_bytes())
        append(log, CONTROL, CheckpointTaken(INTAKE, 1, 5, min(spoilt.offset + 1, 9), "later"))
        if spoilt.offset < 9:
            assert [each.partition for each in script.wait(Loaded, 2)] == [0, 1]
            assert worker.unusable == 0
    assert worker.failure is None


def test_a_blob_that_is_put_back_is_loaded(log: MemoryLog) -> None:
    archive = MemoryArchive()
    append(log, CONTROL, ELECTED)
    script = Script(loads(1))
    with running(log, script, archive, limits=QUICK) as worker:
        eventually(lambda: worker.failure or worker.unusable)
        assert worker.failure is None
        saved(archive, "state-0")
        (loaded,) = script.wait(Loaded)
        assert (loaded.partition, loaded.offset) == (0, 3)
        assert worker.unusable == 0


def test_slices_that_are_missing_leave_the_rest_to_go_on_and_are_loaded_when_they_are_back(
    log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    archive = MemoryArchive()
    archive.write("slices/a", write_slice(seal(made())))
    append(log, CONTROL, ELECTED)
    wanted: list[Effect] = [
        LoadSlices(0, 7, ("slices/a", "slices/b")),
        LoadSlices(1, 7, ("slices/c",)),
    ]
    script = Script(lambda event: wanted if event == CONTROL_READ else [])
    with running(log, script, archive, limits=QUICK) as worker:
        eventually(lambda: worker.failure or worker.unusable == 2)
        (about, *_) = [r for r in caplog.records if "matched, but not searched" in r.message]
        assert "slices/b" in str(vars(about)) or "slices/c" in str(vars(about))
        # Another owner asks for its own.
        append(log, CONTROL, Granted(0, SLOTS, 1, "another"))
        eventually(lambda: worker.failure or worker.unusable == 1)
        archive.write("slices/b", write_slice(seal(made())))
        (loaded,) = script.wait(SlicesLoaded)
        assert (loaded.slot, loaded.epoch, len(loaded.slices)) == (0, 7, 2)
        assert worker.unusable == 0
    assert worker.failure is None


def test_slices_that_were_loaded_before_the_grant_are_not_read_again(log: MemoryLog) -> None:
    # init: a checkpoint that relies on one slice
    archive = MemoryArchive()
    name = slice_name(3, (0, 299))
    archive.write(name, write_slice(seal(made())))
    archive.write("state", *state_pieces({"slices": np.array([[0, 299]])}))
    checkpoints = Checkpoints(log, archive)
    checkpoints.warm(CheckpointTaken(SLOTS, 3, 5, 40, "state"))
    archive.delete(name)

    # test: it is there once
    checkpoints.warm(CheckpointTaken(SLOTS, 3, 5, 40, "state"))
    loaded = checkpoints.fetch(LoadSlices(3, 7, (name,)))
    assert isinstance(loaded, SlicesLoaded)
    assert [len(each) for each in loaded.slices] == [300]
    with pytest.raises(BlobNotFound):
        checkpoints.fetch(LoadSlices(3, 7, (name,)))


def test_slices_of_slots_that_are_not_granted_are_dropped() -> None:
    warm, slice_ = WarmSlices(), seal(made())
    warm.put("a", slice_, now_ms=0)
    warm.put("b", slice_, now_ms=20_000)
    warm.drop_unused(now_ms=WARM_MS + 1)
    assert not warm.holds("a")
    assert warm.take("b") is slice_
    assert warm.take("b") is None
