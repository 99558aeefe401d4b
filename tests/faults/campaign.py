"""All faults in order, and the description of each."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from tests.faults.catalogue import (
    KILL_TARGET_S,
    SERVER_TARGET_S,
    Fault,
    Seen,
    cut,
    fill_archive,
    flush_redis,
    kill,
    kill_broker,
    kill_redis,
    roll,
    scale,
    stop_and_wake,
    stop_broker,
)
from tests.faults.deadly_object import publish_deadly
from tests.faults.load import Account, Load
from tests.faults.poison import poison
from tests.faults.pressure import OVERLOAD, SLOW_SUBSCRIBER, hold_a_subscriber, overload
from tests.faults.rig import Rig
from tests.faults.wires import KAFKA, REDIS


def _wired(rig: Rig) -> bool:
    return rig.wires is not None


def _small(rig: Rig) -> bool:
    return rig.archive_is_small


_SERVICES = ("evaluator", "router", "merger", "coordinator")

FAULTS = (
    *(
        Fault(f"kill-{one}", f"`kill -9` of {one} 0, three times", kill(f"{one}-0"), KILL_TARGET_S)
        for one in _SERVICES
    ),
    Fault("broker-killed", "`kill -9` of the broker, and a start", kill_broker, SERVER_TARGET_S),
    Fault("broker-restarted", "restart of the broker", stop_broker, SERVER_TARGET_S),
    Fault("redis-flushed", "Redis emptied", flush_redis, SERVER_TARGET_S),
    Fault("redis-killed", "Redis killed, back after 10 s, empty", kill_redis, SERVER_TARGET_S),
    *(
        Fault(
            f"stop-{one}",
            f"{one} 0 stands still for 60 s, then wakes",
            stop_and_wake(f"{one}-0"),
            None,
        )
        for one in _SERVICES
    ),
    *(
        Fault(
            f"cut-{one}",
            f"{one} 0 cut off from all for 30 s",
            cut(f"{one}-0"),
            None,
            is_possible=_wired,
        )
        for one in _SERVICES
    ),
    *(
        Fault(
            f"cut-{one}-kafka",
            f"{one} 0 cut off from Kafka alone for 30 s",
            cut(f"{one}-0", KAFKA),
            None,
            is_possible=_wired,
        )
        for one in _SERVICES
    ),
    Fault(
        "cut-evaluator-redis",
        "evaluator 0 cut off from Redis alone for 30 s",
        cut("evaluator-0", REDIS),
        None,
        is_possible=_wired,
    ),
    Fault(
        "archive-full",
        "no room for checkpoints and slices for 50 s",
        fill_archive,
        KILL_TARGET_S,
        is_possible=_small,
    ),
    Fault("poison", "records that make no sense, on every topic", poison, KILL_TARGET_S),
    Fault(
        "deadly-object",
        "an object that ends every evaluator that takes it",
        publish_deadly,
        None,
    ),
    Fault(
        "slow-subscriber",
        "one of three subscribers stops reading",
        hold_a_subscriber,
        None,
        SLOW_SUBSCRIBER,
    ),
    Fault("rolling-restart", "SIGTERM of every process in turn", roll, KILL_TARGET_S),
    Fault("scale-evaluators", "evaluators 1 → 4 → 2", scale("evaluator", 1, 4, 2), KILL_TARGET_S),
    Fault("scale-routers", "routers 1 → 3 → 2", scale("router", 1, 3, 2), KILL_TARGET_S),
    Fault("scale-mergers", "mergers 1 → 3 → 2", scale("merger", 1, 3, 2), KILL_TARGET_S),
    # Last: its objects fill a large part of the archive.
    Fault("overload", "more is published than evaluators can match", overload, None, OVERLOAD),
)


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one fault.

    Attributes:
        fault: The fault.
        seen: Its observations; None if it broke off.
        account: The ledger; None if it could not be closed.
        load: Of the machine, over the last minute.
        seconds: Its duration.
        failure: Why it did not pass; empty if it passed.
    """

    fault: Fault
    seen: Seen | None
    account: Account | None
    load: float
    seconds: float
    failure: str


def tried(rig: Rig, fault: Fault, seed: int) -> Row:
    """Carries out one fault under load and closes the ledger."""
    begin_s = time.monotonic()
    seen: Seen | None = None
    account: Account | None = None
    failure = ""
    name = f"{fault.name}-{seed}"
    try:
        rig.await_ready()
        routers, mergers = map(rig.cluster.addresses_of, ("router", "merger"))
        with Load(routers, mergers, name, fault.load) as load:
            load.progress()
            load.progress()
            seen = fault.act(rig, load)
            account = load.finish()
        failure = _failure(fault, seen, account)
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    return Row(fault, seen, account, os.getloadavg()[0], time.monotonic() - begin_s, failure)


def _failure(fault: Fault, seen: Seen, account: Account) -> str:
    if account.lost or account.surplus:
        return f"{account.lost} lost, {account.surplus} doubled or wrong"
    if account.errors:
        return "; ".join(account.errors)
    if not account.pairs:
        return "no notification was due"
    if fault.target_s is not None and (seen.resumed_s or 0.0) > fault.target_s:
        return f"later than {fault.target_s:.0f} s"
    return "" if seen.is_kept else seen.note or "what else was claimed did not hold"
