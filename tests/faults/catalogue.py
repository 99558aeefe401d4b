"""The faults: each is a function that breaks something and measures when matching resumes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.faults.load import Load, LoadSettings
from tests.faults.rig import Rig

KILL_TARGET_S = 10.0
SERVER_TARGET_S = 15.0

# Longer than all leases and timeouts between processes.
STANDSTILL_S = 60.0


@dataclass(frozen=True, slots=True)
class Seen:
    """Observations of a fault besides the account.

    Attributes:
        resumed_s: Seconds until everything published since matched again; None if matching should
            not stop.
        note: For the reader.
        is_kept: Whether the other claims held.
    """

    resumed_s: float | None
    note: str = ""
    is_kept: bool = True


Action: TypeAlias = Callable[[Rig, Load], Seen]


@dataclass(frozen=True, slots=True)
class Fault:
    """One row of the table.

    Attributes:
        name: For `--only`.
        what: For the reader.
        act: Breaks and repairs.
        target_s: The time within which matching has to resume; None for no target.
        load: The load meanwhile.
        is_possible: Whether it is possible on this machine.
    """

    name: str
    what: str
    act: Action
    target_s: float | None
    load: LoadSettings = field(default_factory=LoadSettings)
    is_possible: Callable[[Rig], bool] = lambda _: True


def kill(name: str, times: int = 3) -> Action:
    """kill -9, repeatedly; the guard restarts it each time."""

    def act(rig: Rig, load: Load) -> Seen:
        resumed_s: list[float] = []
        for number in range(times):
            rig.cluster.kill(name)
            resumed_s.append(load.progress())
            load.register_late(f"late{number}")
            rig.await_ready()
            load.progress()
        return Seen(max(resumed_s), "; ".join(f"{each:.1f}" for each in resumed_s) + " s")

    return act


def stop_and_wake(name: str) -> Action:
    """SIGSTOP, one minute, SIGCONT."""

    def act(rig: Rig, load: Load) -> Seen:
        with rig.stopped(rig.one(name).process):
            begin_s = time.monotonic()
            resumed_s = load.progress()
            load.register_late("meanwhile")
            load.run(STANDSTILL_S - (time.monotonic() - begin_s))
        awake_s = load.progress()
        load.run(5.0)
        rig.await_ready()
        return Seen(resumed_s, f"{awake_s:.1f} s after waking")

    return act


def kill_broker(rig: Rig, load: Load) -> Seen:
    """kill -9 of the broker; the time counts from when it accepts connections again."""
    begin_s = time.monotonic()
    rig.kafka.kill()
    rig.kafka.start()
    away_s = time.monotonic() - begin_s
    return Seen(load.progress(), f"the broker was away for {away_s:.1f} s")


def stop_broker(rig: Rig, load: Load) -> Seen:
    """SIGTERM of the broker, and a start; the time counts from the end of the start."""
    begin_s = time.monotonic()
    rig.kafka.restart()
    away_s = time.monotonic() - begin_s
    return Seen(load.progress(), f"the broker was away for {away_s:.1f} s")


def flush_redis(rig: Rig, load: Load) -> Seen:
    """FLUSHALL."""
    rig.flush_redis()
    resumed_s = load.progress()
    load.run(10.0)
    return Seen(resumed_s)


def kill_redis(rig: Rig, load: Load) -> Seen:
    """kill -9 of Redis, which is away for 10 s and returns empty."""
    rig.redis.kill()
    resumed_s = load.progress()
    load.run(10.0)
    rig.redis.start()
    resumed_s = max(resumed_s, load.progress())
    load.register_late("afterwards")
    load.run(10.0)
    return Seen(resumed_s)


def cut(name: str, *peers: str, seconds: float = 30.0) -> Action:
    """Drops all packets between a process and others, or all others, for a while."""

    def act(rig: Rig, load: Load) -> Seen:
        assert rig.wires is not None
        rig.await_word()
        rig.wires.cut(name, *peers)
        begin_s = time.monotonic()
        try:
            resumed_s = load.progress()
            load.run(seconds - (time.monotonic() - begin_s))
        finally:
            rig.wires.heal(name)
        healed_s = load.progress()
        load.run(5.0)
        rig.await_ready()
        return Seen(resumed_s, f"{healed_s:.1f} s after healing")

    return act


def fill_archive(rig: Rig, load: Load) -> Seen:
    """Leaves no room for checkpoints and slices, for longer than several checkpoints take."""
    before, unsaved_before = rig.pids(), rig.times_logged("checkpoint_not_saved")
    with rig.full_archive():
        load.run(50.0)
        resumed_s = load.progress()
        same = rig.pids() == before
        unsaved = rig.times_logged("checkpoint_not_saved") - unsaved_before
    load.run(20.0)
    ended = "no process ended" if same else "processes ended and came back"
    rig.cluster.kill("evaluator-0")
    after_s = load.progress()
    rig.await_ready()
    note = (
        f"{unsaved} checkpoints not saved, {ended}; an evaluator killed afterwards: {after_s:.1f} s"
    )
    # If all were saved there was room, and nothing was tested.
    return Seen(resumed_s, note, same and unsaved > 0)


def roll(rig: Rig, load: Load) -> Seen:
    """SIGTERM of every process, one after the other, each once its predecessor is replaced."""
    worst_s = 0.0
    for one in rig.cluster.processes:
        one.process.stop(40.0)
        worst_s = max(worst_s, load.progress())
        rig.await_ready()
    return Seen(worst_s, f"{len(rig.cluster.processes)} processes")


def scale(service: str, *counts: int) -> Action:
    """Adds processes of a service, and drains them."""

    def act(rig: Rig, load: Load) -> Seen:
        worst_s = 0.0
        for count in counts:
            rig.cluster.scale(service, count)
            worst_s = max(worst_s, load.progress())
            load.run(3.0)
        rig.await_ready()
        return Seen(worst_s, " → ".join(map(str, counts)))

    return act
