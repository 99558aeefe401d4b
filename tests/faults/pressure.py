"""Overloads a subscriber, and the evaluators."""

from __future__ import annotations

import os
import signal
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import grpc
import numpy as np
from sirocco_api.v1.publish_service_pb2 import PublishRequest
from sirocco_api.v1.publish_service_pb2_grpc import PublishServiceStub
from sirocco_client import ResourceExhausted
from sirocco_client.connection.channels import error_of

from tests.faults.catalogue import Seen
from tests.faults.load import Load, LoadSettings
from tests.faults.rig import Rig

# A subscriber's credit is used up within a second: then its merger keeps the rest.
SLOW_SUBSCRIBER = LoadSettings(subscribers=3, credit=1_000)
_SLOW = 2
_STUCK_S = 1.0
# Windows alternate, so that other work on the machine affects both kinds. The p99 of one window
# differs from the next one's by an eighth: the medians of this many by a twentieth.
_ROUNDS = 20
_WINDOW_S = 4.0
_CATCH_UP_S = 2.0
SLOWER_MAX = 1.10

# Large texts reach the limit of data in flight within seconds.
OVERLOAD = LoadSettings(objects_per_s=10_000, publishers=4, text_bytes=2_000)
_OVERLOADED_S_MAX = 180.0
_LOOKS = 20
# The share of each tenth of a second that evaluators run.
_SHARE = 0.03
_PERIOD_S = 0.1
# Data in flight (160 MiB a router is in the log, not in memory), read ahead, queued for the log,
# and stored for searches, with room for the allocator.
GROWTH_BYTES_MAX = 768 << 20


def hold_a_subscriber(rig: Rig, load: Load) -> Seen:
    """A subscriber reads nothing for some time, repeatedly; others are compared."""
    beside: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(_ROUNDS):
        beside[False].append(_p99_s(load))
        with load.holding(_SLOW):
            load.run(_STUCK_S)
            beside[True].append(_p99_s(load))
        load.run(_CATCH_UP_S)
    fast_s, slow_s = (statistics.median(beside[is_slow]) for is_slow in (False, True))
    note = f"others' p99 {1_000 * slow_s:.0f} ms meanwhile, {1_000 * fast_s:.0f} ms when it reads"
    return Seen(None, note, slow_s <= SLOWER_MAX * fast_s)


def _p99_s(load: Load) -> float:
    begin_s = time.monotonic()
    load.run(_WINDOW_S)
    return float(np.percentile(load.waits_s(begin_s, time.monotonic(), _SLOW), 99))


def overload(rig: Rig, load: Load) -> Seen:
    """Evaluators get a few hundredths of their time; further objects are refused at the edge."""
    before = rig.resident_bytes()
    peaks = dict(before)
    refused: ResourceExhausted | None = None
    with _slowed([one for one in rig.pids() if one.startswith("evaluator")], rig):
        begin_s = time.monotonic()
        at_begin = load.published
        # The time to reach the limit of data in flight depends on the machine.
        while refused is None and time.monotonic() - begin_s < _OVERLOADED_S_MAX:
            for _ in range(_LOOKS):
                load.run(0.5)
                for name, size in rig.resident_bytes().items():
                    peaks[name] = max(size, peaks.get(name, 0))
            refused = _refusal(rig)
        overloaded_s = time.monotonic() - begin_s
        taken_per_s = (load.published - at_begin) / overloaded_s
    resumed_s = load.progress()
    growth = {name: size - before.get(name, 0) for name, size in peaks.items()}
    most = max(growth, key=lambda name: growth[name])
    hint = f"refused with {refused.retry_after_ms} ms to wait" if refused else "never refused"
    note = (
        f"{taken_per_s:.0f} objects/s of {OVERLOAD.text_bytes} bytes taken for "
        f"{overloaded_s:.0f} s, then {hint}; "
        f"{most} grew most, by {growth[most] >> 20} MiB"
    )
    is_kept = refused is not None and growth[most] <= GROWTH_BYTES_MAX
    return Seen(resumed_s, note, is_kept)


def _refusal(rig: Rig) -> ResourceExhausted | None:
    """Returns the refusal that a new publisher gets."""
    request = PublishRequest(session=int(time.time() * 1_000), first_number=1)
    request.objects.count = 1
    for name in ("ids", "lon", "lat"):
        setattr(request.objects, name, np.zeros(1, np.float64).tobytes())
    for address in rig.cluster.router_addresses:
        with grpc.insecure_channel(address) as channel:
            try:
                list(PublishServiceStub(channel).Publish(iter([request]), timeout=15.0))
            except grpc.RpcError as failure:
                error = error_of(failure)
                if isinstance(error, ResourceExhausted) and error.retry_after_ms:
                    return error
    return None


@contextmanager
def _slowed(names: list[str], rig: Rig) -> Iterator[None]:
    """Lets processes run for only a share of each period."""
    ending = threading.Event()

    def send(pids: list[int], number: signal.Signals) -> None:
        for pid in pids:
            # A process that has ended meanwhile returns under another number.
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def slow() -> None:
        while not ending.is_set():
            pids = [pid for name, pid in rig.pids().items() if name in names]
            send(pids, signal.SIGSTOP)
            ending.wait((1 - _SHARE) * _PERIOD_S)
            send(pids, signal.SIGCONT)
            time.sleep(_SHARE * _PERIOD_S)

    thread = threading.Thread(target=slow)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
