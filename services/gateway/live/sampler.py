"""Looks at the cluster for all consoles of one caller: each look costs the cluster once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import orjson
from sirocco_client import AsyncClient, PermissionDenied, Unauthenticated
from sirocco_client.errors import SiroccoError as ClientError

from sirocco.model.errors import SiroccoError as EngineError
from sirocco.services.gateway.callers import Caller
from sirocco.services.gateway.front import Front
from sirocco.services.gateway.live.figures import (
    LeafLoads,
    Rates,
    balance_members,
    map_members,
    member_counts,
    members_members,
    rounded,
    total_per_s,
)
from sirocco.services.gateway.live.window import SENT, WANTED, SampleWindow

# Seconds between two looks, and for one look.
_OBJECTS_S = 1.0
_CLUSTER_S = 2.0
_BALANCE_S = 5.0
_CALL_S = 4.0

# What a token may not see is asked for again after this time: its scopes may have changed.
_REFUSED_S = 60.0

# Objects of a sample that are read at most, before some of them are chosen.
_READ_MAX = 4 * WANTED

# Characters of an object's text.
_TEXT_MAX = 140


@dataclass(frozen=True, slots=True)
class Latest:
    """The last event of a type.

    Attributes:
        number: of the event; later ones are greater.
        data: JSON.
    """

    number: int
    data: bytes


class Sampler:
    """What one caller may see of the cluster, looked at while somebody watches.

    Attributes:
        latest: the last event of each type.
        news: set when there is another one; replaced then.
        watchers: streams that are served from it.
        task: the looks; None while nobody watches.

    Args:
        front: of the gateway.
        caller: whose token it looks with.
        slowness: returns how many times longer than usual it rests between two looks.
        unwatched: called when nobody watches any more.
    """

    def __init__(
        self,
        front: Front,
        caller: Caller,
        slowness: Callable[[], float],
        unwatched: Callable[[], None],
    ) -> None:
        self._slowness = slowness
        self._unwatched = unwatched
        self._front = front
        self._caller = caller
        self.latest: dict[str, Latest] = {}
        self.news = asyncio.Event()
        self.watchers = 0
        self.task: asyncio.Task[None] | None = None
        self._number = 0
        self._window = SampleWindow()
        self._rates = Rates()
        self._leaf_loads = LeafLoads()
        self._state: dict[str, Any] = {}
        # What could not be looked at, and why.
        self._problems: dict[str, str] = {}
        self._seen: set[tuple[int, int]] = set()

    def begin(self) -> None:
        """Counts a watcher; the first one starts the looks."""
        self.watchers += 1
        if self.task is None or self.task.done():
            self.task = asyncio.create_task(self._run(), name="sirocco-gateway-live")

    def end(self) -> None:
        """Counts a watcher less; the last one ends the looks."""
        self.watchers -= 1
        if not self.watchers:
            self._unwatched()
            if self.task is not None:
                self.task.cancel()
                self.task = None

    async def _run(self) -> None:
        async with self._front.clients.use(self._caller) as connected, asyncio.TaskGroup() as group:
            client = connected.client
            looks: tuple[tuple[str, float, Callable[[AsyncClient], Awaitable[None]]], ...] = (
                ("objects", _OBJECTS_S, self._look_at_objects),
                ("cluster", _CLUSTER_S, self._look_at_cluster),
                ("balance", _BALANCE_S, self._look_at_balance),
            )
            for name, period_s, look in looks:
                group.create_task(self._repeat(name, period_s, look, client))

    async def _repeat(
        self,
        name: str,
        period_s: float,
        look: Callable[[AsyncClient], Awaitable[None]],
        client: AsyncClient,
    ) -> None:
        while True:
            begin_s = time.monotonic()
            pause_s = period_s
            try:
                await look(client)
                problem = ""
            except (PermissionDenied, Unauthenticated) as error:
                problem, pause_s = error.message, _REFUSED_S
            except (ClientError, EngineError) as error:
                problem = error.message
            if problem != self._problems.get(name, ""):
                self._problems[name] = problem
                self._publish_state({})
            # At least half of the time it does not look: a slow cluster has enough to do.
            used_s = time.monotonic() - begin_s
            await asyncio.sleep(max(pause_s * self._slowness() - used_s, used_s, 0.1))

    async def _look_at_objects(self, client: AsyncClient) -> None:
        window_ms = self._window.ms
        asked = {
            "id": "console",
            "kind": "range",
            "mode": "snapshot",
            "window": f"{window_ms}ms",
        }
        begin_s = time.monotonic()
        rows: list[tuple[Any, ...]] = []
        seen: set[tuple[int, int]] = set()
        newest_ms = 0
        parts = client.search_parts(asked, allow_partial=True, timeout_s=_CALL_S)
        # Reading ends early where a stream has suddenly become fast: the next window is shorter.
        async with aclosing(parts):  # type: ignore[type-var]
            async for part in parts:
                newest_ms = max(newest_ms, *part.arrivals_ms, 0)
                seen.update(zip(part.sessions, part.numbers, strict=True))
                rows += zip(
                    part.object_ids,
                    part.lon,
                    part.lat,
                    part.arrivals_ms,
                    part.texts,
                    zip(part.sessions, part.numbers, strict=True),
                    strict=True,
                )
                if len(rows) >= _READ_MAX:
                    break
        took_s = time.monotonic() - begin_s
        count = len(rows)
        self._window.found(count)
        fresh = [row for row in rows if row[5] not in self._seen]
        self._seen = seen
        stride = max(1, -(-len(fresh) // SENT))
        now_ms = time.time_ns() // 1_000_000
        self._publish(
            "objects",
            {
                "at": now_ms,
                "found": count,
                "window_ms": window_ms,
                "objects": [
                    [str(one), round(lon, 5), round(lat, 5), at_ms, text[:_TEXT_MAX]]
                    for one, lon, lat, at_ms, text, _ in fresh[::stride]
                ],
            },
        )
        self._state["search_ms"] = rounded(took_s * 1_000)
        # Beside a rare stream the age of the newest object says nothing of the cluster.
        is_busy = count >= SENT // 10 and window_ms <= 1_000
        self._state["lag_ms"] = max(0, now_ms - newest_ms) if is_busy else None

    async def _look_at_cluster(self, client: AsyncClient) -> None:
        try:
            found = await client.describe(leaves=True, timeout_s=_CALL_S)
        except PermissionDenied:
            # A tenant sees the processes, but neither leaves nor owners.
            found = await client.describe(timeout_s=_CALL_S)
        now_s = time.monotonic()
        self._rates.read(member_counts(found), now_s)
        members = members_members(found, self._rates)
        self._publish_if_new("map", map_members(found))
        self._publish_state(
            {
                "cluster": found.cluster,
                "leader": found.leader,
                "members": members,
                "loads": self._leaf_loads.read(found),
                "map_version": found.map_version,
                "objects_per_s": total_per_s(members, "router", "objects_per_s"),
                "matches_per_s": total_per_s(members, "evaluator", "matches_per_s"),
            }
        )

    async def _look_at_balance(self, client: AsyncClient) -> None:
        found = await client.balance(timeout_s=_CALL_S)
        self._publish_if_new("balance", balance_members(found))

    def _publish_state(self, more: dict[str, Any]) -> None:
        self._state |= more
        problems = {name: problem for name, problem in self._problems.items() if problem}
        self._publish("state", self._state | {"problems": problems})

    def _publish_if_new(self, name: str, members: dict[str, Any]) -> None:
        last = self.latest.get(name)
        if last is None or last.data != orjson.dumps(members):
            self._publish(name, members)

    def _publish(self, name: str, members: dict[str, Any]) -> None:
        self._number += 1
        self.latest[name] = Latest(self._number, orjson.dumps(members))
        news, self.news = self.news, asyncio.Event()
        news.set()
