"""All routers stand still while thousands of standing queries have steps of a second.

usage: python -m tests.faults.standstill [--queries N] [--seconds S] [--limit S]

The time of all slots stands still with them, and passes all of these steps at once when they go on.
Prints what was reported meanwhile, and in the end: after how long all was caught up with; steps out
of order, twice, missing or partial; the most memory that an evaluator took; and how often a process
failed. Exit status 1 when any step was, or nothing was caught up with in time.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from sirocco_client import Client, PublishFailed, query_from_json
from sirocco_client.notifications.list_changes import TermsStep

from tests.faults.rig import Rig, set_up

STEP_MS = 1_000
# Steps are reported some seconds after their time: routers report their time once a second.
LATE_MS = 4_000
CALM_S = 30.0
LOOK_S = 5.0
WORDS = [f"word{number}" for number in range(300)]
SUBSCRIBER = "standstill"


@dataclass(slots=True)
class StepReports:
    """The reports of the steps."""

    steps: int = 0
    misplaced: int = 0
    partial: int = 0
    newest_ms: dict[str, int] = field(default_factory=dict)

    def take(self, events: Iterable[Any]) -> None:
        """Takes all reports that arrive, until none follows."""
        for each in events:
            if not isinstance(each, TermsStep):
                continue
            before_ms = self.newest_ms.get(each.query, each.at_ms - STEP_MS)
            self.steps += 1
            self.misplaced += each.at_ms != before_ms + STEP_MS
            self.partial += each.is_partial
            self.newest_ms[each.query] = each.at_ms

    def lag_s(self) -> float:
        """Returns the age of the newest reported step of the query that lags most."""
        return time.time() - min(self.newest_ms.values(), default=0) / 1_000


def main() -> int:
    """Parses the command line, and runs the fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.standstill", description=__doc__)
    parser.add_argument("--queries", type=int, default=4_000)
    parser.add_argument("--seconds", type=float, default=240.0, help="of standing still")
    parser.add_argument("--limit", type=float, default=600.0, help="to catch up, seconds")
    given = parser.parse_args()
    with set_up() as rig:
        rig.await_ready()
        return _tried(rig, given.queries, given.seconds, given.limit)


def _tried(rig: Rig, queries: int, seconds: float, limit_s: float) -> int:
    client = Client(",".join(rig.cluster.addresses_of("router")))
    received, ending, most = StepReports(), threading.Event(), 0
    subscription = client.subscribe(SUBSCRIBER)
    subscription.open()
    threading.Thread(target=received.take, args=(subscription,), daemon=True).start()
    rng = random.Random(queries)
    for result in client.register_many([_query(rng, number) for number in range(queries)]):
        assert result.error is None, result
    threading.Thread(target=_publish, args=(client, ending), daemon=True).start()

    def look(what: str, until_s: float) -> None:
        nonlocal most
        while time.monotonic() < until_s:
            time.sleep(LOOK_S)
            memory = rig.resident_bytes()
            most = max(most, *(memory[name] for name in memory if name.startswith("evaluator")))
            print(
                f"{what}: {received.steps} steps reported, {received.lag_s():.0f} s behind",
                flush=True,
            )
            if what == "goes on" and 1_000 * received.lag_s() < LATE_MS:
                return

    look("calm", time.monotonic() + CALM_S)
    failed = rig.times_logged("loop_failed")
    with ExitStack() as stack:
        for one in rig.cluster.processes:
            if one.name.startswith("router"):
                stack.enter_context(rig.stopped(one.process))
        look("stands still", time.monotonic() + seconds)
    begin_s = time.monotonic()
    look("goes on", begin_s + limit_s)
    is_over = 1_000 * received.lag_s() < LATE_MS
    ending.set()
    print(
        f"{'caught up' if is_over else 'NOT caught up'} after {time.monotonic() - begin_s:.0f} s;"
        f" {received.steps} steps reported, {received.misplaced} out of place,"
        f" {received.partial} partial; an evaluator took {most >> 20} MiB at most;"
        f" {rig.times_logged('loop_failed') - failed} processes failed"
    )
    return 0 if is_over and not received.misplaced and not received.partial else 1


def _query(rng: random.Random, number: int) -> Any:
    west, south = rng.uniform(-4, 3), rng.uniform(-4, 3)
    region = {"rect": {"west": west, "south": south, "east": west + 1, "north": south + 1}}
    members = {"id": f"steps-{number}", "kind": "terms", "mode": "continuous", "k": 10}
    return query_from_json({**members, "region": region, "window": "60s", "step": "1s"}, SUBSCRIBER)


def _publish(client: Client, ending: threading.Event) -> None:
    """Publishes some hundred objects a second, as long as routers take them."""
    rng, number = random.Random(0), 0
    publisher = client.publisher()
    while not ending.wait(0.1):
        try:
            for _ in range(25):
                number += 1
                text = " ".join(rng.choices(WORDS, k=6))
                place = {"lon": rng.uniform(-4, 4), "lat": rng.uniform(-4, 4)}
                publisher.publish({"id": number, **place, "text": text})
        except PublishFailed:
            # The publisher's buffer has overflowed meanwhile: another publisher continues.
            publisher = client.publisher()


if __name__ == "__main__":
    sys.exit(main())
