"""What is in force (rule R4), and its meaning for a process that owns parts of it."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest

from sirocco.codec.hops import key_of
from sirocco.protocol.contract.control_records import (
    CheckpointTaken,
    Declaration,
    Granted,
    LeaderElected,
    MapActivated,
)
from sirocco.protocol.contract.control_view import ControlView, Ownership
from sirocco.protocol.contract.effects import (
    Append,
    ControlRead,
    Discard,
    Effect,
    Load,
    Loaded,
    Sweep,
    Unfollow,
)
from sirocco.protocol.contract.messages import CONTROL, INTAKE, SLOTS
from sirocco.protocol.contract.partition_ownership import Holdings, checkpoint_name
from sirocco.protocol.router.machine import RouterMachine, RouterSettings
from sirocco.schemes.map.map_bytes import MAGIC, to_bytes
from tests.support.values import map_activated, uniform_map

Log = list[tuple[int, Declaration]]


def view_of(log: Log) -> ControlView:
    view = ControlView()
    for offset, declaration in log:
        view.apply(offset, declaration)
    return view


def compacted_log(log: Log) -> Log:
    """Returns the newest record of each key, at its offset."""
    newest = {key_of(declaration): (offset, declaration) for offset, declaration in log}
    return sorted(newest.values(), key=lambda entry: entry[0])


def random_log(rng: np.random.Generator, *, zombies: bool) -> Log:
    """Returns leaders, grants, maps, checkpoints; with zombies also records of former leaders."""
    log: Log = []
    terms: list[int] = []
    version = 0
    for offset in range(int(rng.integers(1, 80))):
        kind = rng.random()
        if not terms or kind < 0.1:
            log.append((offset, LeaderElected(f"c{int(rng.integers(3))}")))
            terms.append(offset)
            continue
        term = int(rng.choice(terms)) if zombies and rng.random() < 0.3 else terms[-1]
        partition = int(rng.integers(4))
        if kind < 0.5:
            topic = str(rng.choice([INTAKE, SLOTS]))
            log.append((offset, Granted(term, topic, partition, f"m{int(rng.integers(3))}")))
        elif kind < 0.6:
            version += 1
            log.append((offset, map_activated(term, version)))
        else:
            reached = 10 * offset
            name = f"{partition}/{reached}"
            log.append((offset, CheckpointTaken(SLOTS, partition, 1, reached, name)))
    return log


@pytest.mark.parametrize("seed", range(100))
def test_r4_a_compacted_log_gives_the_same_view(seed: int) -> None:
    log = random_log(np.random.default_rng(seed), zombies=False)
    whole, short = view_of(log), view_of(compacted_log(log))
    assert replace(short, next_offset=0) == replace(whole, next_offset=0), f"seed={seed}"


@pytest.mark.parametrize("seed", range(100))
def test_r4_the_words_of_former_leaders_are_void(seed: int) -> None:
    log = random_log(np.random.default_rng(seed), zombies=True)
    true: Log = []
    term = -1
    for offset, declaration in log:
        if isinstance(declaration, LeaderElected):
            term = offset
        if getattr(declaration, "term", term) == term:
            true.append((offset, declaration))
    assert replace(view_of(log), next_offset=0) == replace(view_of(true), next_offset=0)


def test_r4_the_epoch_is_the_offset_of_the_grant() -> None:
    view = view_of([(3, LeaderElected("c")), (8, Granted(3, SLOTS, 1, "m"))])
    assert view.owners == {(SLOTS, 1): Ownership("m", 8)}


def map_with(**members: object) -> bytes:
    """Returns a well-packed map with a wrong header."""
    plain = zlib.decompress(map_activated(0).partition_map[len(MAGIC) :])
    (size,) = struct.unpack_from("<I", plain)
    header = json.loads(plain[4 : 4 + size]) | members
    head = json.dumps(header).encode()
    body = plain[4 + size :]
    return MAGIC + zlib.compress(struct.pack("<I", len(head)) + head + body)


UNREADABLE = {
    "nothing": b"",
    "text": b"a map",
    "cut short": map_activated(0, 2).partition_map[:-3],
    "not packed": MAGIC + b"\xff" * 40,
    "no header": MAGIC + zlib.compress(b"\xff\xff\xff\xff"),
    "deep": MAGIC + zlib.compress(struct.pack("<I", 1 << 20) + b"[" * (1 << 20)),
    "no number": map_with(version=float("inf")),
    "a list": MAGIC + zlib.compress(struct.pack("<I", 2) + b"[]"),
    "no columns": map_with(columns=[["<f8", [-1]]]),
    "unknown scheme": map_with(version=2, scheme="by-moonlight"),
    "another version": to_bytes(uniform_map(4, 4, 3)),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_r4_a_map_that_cannot_be_read_is_not_in_force(name: str) -> None:
    good, garbage = map_activated(0), MapActivated(0, 2, UNREADABLE[name])
    first = view_of([(0, LeaderElected("c")), (1, garbage)])
    assert (first.map_version, first.partition_map, first.map_in_force) == (0, b"", None)
    view = view_of([(0, LeaderElected("c")), (1, good)])
    before = replace(view)
    assert not view.apply(2, garbage)
    assert view == replace(before, next_offset=3)
    assert view.map_in_force is before.map_in_force
    # The next correct one is.
    assert view.apply(3, map_activated(0, 3))


@pytest.mark.parametrize("name", UNREADABLE)
def test_r4_a_router_continues_by_the_map_before_one_that_cannot_be_read(name: str) -> None:
    router = RouterMachine("m", RouterSettings(4))
    log: list[Declaration] = [
        LeaderElected("c"),
        MapActivated(0, 1, UNREADABLE[name]),
        map_activated(0),
        MapActivated(0, 2, UNREADABLE[name]),
        Granted(0, INTAKE, 1, "m"),
    ]
    effects = [router.step(ControlRead(at, each), 0) for at, each in enumerate(log)]
    assert effects == [[], [], [], [], [Load(INTAKE, 1, 4, "", 0)]]
    assert router.intake.routing is not None


def test_r4_a_term_that_no_election_can_have_is_void() -> None:
    # It would count as greater than that of any later leader.
    log: Log = [(0, LeaderElected("c")), (1, map_activated(7)), (2, Granted(2, SLOTS, 0, "m"))]
    view = view_of(log)
    assert (view.term, view.map_version, view.owners) == (0, 0, {})
    assert view.apply(3, Granted(0, SLOTS, 0, "m"))


def test_the_farthest_checkpoint_counts_whoever_wrote_it() -> None:
    far, near = CheckpointTaken(SLOTS, 0, 5, 90, "far"), CheckpointTaken(SLOTS, 0, 9, 60, "near")
    logs: list[Log] = [[(0, far), (1, near)], [(0, near), (1, far)]]
    for log in logs:
        assert view_of(log).checkpoints == {(SLOTS, 0): far}


def holdings(*declarations: Declaration) -> tuple[Holdings, list[Effect]]:
    """Returns a process m that has read these, after an election and a map."""
    made, effects = Holdings("m", frozenset({SLOTS})), []
    made.control(0, LeaderElected("c"))
    made.control(1, map_activated(0))
    for offset, declaration in enumerate(declarations, start=2):
        effects += made.control(offset, declaration)[0]
    return made, effects


def loaded(made: Holdings, partition: int, epoch: int) -> bool:
    return made.loaded(Loaded(topic=SLOTS, partition=partition, epoch=epoch, offset=0, state=None))


def test_grants_wait_for_a_map() -> None:
    made = Holdings("m", frozenset({SLOTS}))
    made.control(0, LeaderElected("c"))
    assert made.control(1, Granted(0, SLOTS, 4, "m")) == ([], [])
    effects, _ = made.control(2, map_activated(0))
    assert effects == [Load(SLOTS, 4, 1, "", 0)]


def test_a_grant_loads_the_newest_checkpoint_and_owns_when_loaded() -> None:
    made, effects = holdings(
        CheckpointTaken(SLOTS, 4, 1, 70, "name"),
        Granted(0, SLOTS, 4, "m"),
        Granted(0, INTAKE, 4, "m"),
    )
    assert effects == [Load(SLOTS, 4, 3, "name", 70)]
    assert (made.owns(SLOTS, 4), made.owned(SLOTS), made.ready) == (False, [], False)
    assert loaded(made, 4, 3)
    assert (made.owns(SLOTS, 4), made.owned(SLOTS), made.ready) == (True, [4], True)
    assert not loaded(made, 4, 3)


def test_what_another_is_granted_is_let_go() -> None:
    made, _ = holdings(Granted(0, SLOTS, 4, "m"))
    loaded(made, 4, 2)
    assert made.control(3, Granted(0, SLOTS, 4, "other")) == ([Unfollow(SLOTS, 4)], [(SLOTS, 4)])
    assert not made.owns(SLOTS, 4)


def test_an_equal_grant_changes_the_epoch_alone() -> None:
    made, _ = holdings(Granted(0, SLOTS, 4, "m"))
    loaded(made, 4, 2)
    assert made.control(3, Granted(0, SLOTS, 4, "m")) == ([], [])
    assert made.held[SLOTS, 4].epoch == 3
    assert made.owns(SLOTS, 4)


def test_a_partition_lost_and_regained_is_loaded_again_and_the_late_answer_is_stale() -> None:
    made, effects = holdings(
        Granted(0, SLOTS, 4, "m"), Granted(0, SLOTS, 4, "other"), Granted(0, SLOTS, 4, "m")
    )
    assert [type(effect) for effect in effects] == [Load, Unfollow, Load]
    assert not loaded(made, 4, 2)
    assert not made.owns(SLOTS, 4)
    assert loaded(made, 4, 4)


def test_a_void_grant_moves_nothing() -> None:
    made, _ = holdings(Granted(0, SLOTS, 4, "m"), LeaderElected("d"))
    loaded(made, 4, 2)
    assert made.control(4, Granted(0, SLOTS, 4, "other")) == ([], [])
    assert made.owns(SLOTS, 4)


def test_the_owner_discards_checkpoints_but_the_newest_two() -> None:
    made, _ = holdings(Granted(0, SLOTS, 4, "m"))
    loaded(made, 4, 2)
    discarded = []
    for i in range(5):
        taken = CheckpointTaken(SLOTS, 4, 2, 10 * (i + 1), f"c{i}")
        discarded += made.control(3 + i, taken)[0]
    # The first time, also blobs left by earlier owners.
    swept = Sweep("checkpoints/slots/00004/", "c0")
    assert discarded == [swept, Discard("c0"), Discard("c1"), Discard("c2")]
    # Not those of others.
    assert made.control(8, CheckpointTaken(SLOTS, 5, 2, 10, "x")) == ([], [])
    assert made.control(9, CheckpointTaken(SLOTS, 5, 2, 20, "y")) == ([], [])
    assert made.control(10, CheckpointTaken(SLOTS, 5, 2, 30, "z")) == ([], [])


def test_checkpoints_of_owners_before_are_swept_once_in_each_ownership() -> None:
    made, _ = holdings(Granted(0, SLOTS, 4, "m"))
    loaded(made, 4, 2)
    names = [checkpoint_name(SLOTS, 4, 10 * (i + 1), 2) for i in range(5)]
    taken = [CheckpointTaken(SLOTS, 4, 2, 10 * (i + 1), name) for i, name in enumerate(names)]
    assert made.control(3, taken[0])[0] == []
    # Names sort like their offsets: all below the newest but one are removed.
    assert names == sorted(names)
    assert made.control(4, taken[1])[0] == [Sweep("checkpoints/slots/00004/", names[0])]
    assert made.control(5, taken[2])[0] == [Discard(names[0])]
    # Lost, and granted again: checkpoints taken meanwhile, and those that it had not yet removed.
    made.control(6, Granted(0, SLOTS, 4, "other"))
    assert made.control(7, taken[3])[0] == []
    made.control(8, Granted(0, SLOTS, 4, "m"))
    assert made.control(9, taken[4])[0] == [Sweep("checkpoints/slots/00004/", names[3])]


def test_r4_the_owner_republishes_its_checkpoint_after_a_lesser_one_of_a_zombie() -> None:
    # Compaction keeps the newest record of a subject: it has to be the valid one.
    made, _ = holdings(Granted(0, SLOTS, 4, "m"))
    loaded(made, 4, 2)
    mine = CheckpointTaken(SLOTS, 4, 2, 90, "mine")
    made.control(3, mine)
    effects, _ = made.control(4, CheckpointTaken(SLOTS, 4, 1, 60, "zombie"))
    assert effects == [Append(CONTROL, 0, mine)]
    assert made.control(5, mine) == ([], [])
