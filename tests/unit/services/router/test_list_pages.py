"""Pages of a list: what one caller may have read of the registry, which all tenants share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

from sirocco.internal_api.v1 import owner_service_pb2 as pb
from sirocco.model.query import parse_query
from sirocco.services.router import registry_definitions
from sirocco.services.router.registry_definitions import StoredQueries

QUERY = {"kind": "range", "mode": "continuous", "text": "fire"}


class Stored(StoredQueries):
    """Reads a registry of so many live queries, of which each hundredth is acme's.

    Attributes:
        looked_at: changes that were read.
        gate: they go on when it is set.
    """

    def __init__(self, count: int, changes_max: int = registry_definitions.CHANGES_MAX) -> None:
        live = SimpleNamespace(is_standing=lambda *_: True)
        registry = SimpleNamespace(offset=count, place=int, live=live)
        machine: Any = SimpleNamespace(registries={0: registry}, lifetimes_ms=lambda now_ms: now_ms)
        super().__init__(SimpleNamespace(), machine, changes_max)  # type: ignore[arg-type]
        self.looked_at = 0
        self.gate = threading.Event()
        self.gate.set()

    def changes(self, *span: Any) -> Generator[tuple[int, Any], None, None]:
        """See `StoredQueries`."""
        _, begin, end, *_ = span
        self.gate.wait(30)
        for offset in range(begin, end):
            self.looked_at += 1
            name = f"{'others' if offset % 100 else 'acme'}:{offset}"
            yield (
                offset,
                SimpleNamespace(
                    handle=offset,
                    query=parse_query({"id": name, **QUERY}),
                    subscriber="s",
                    start_ms=0,
                    is_start_given=False,
                    is_republished=False,
                ),
            )


def page_of(prefix: str, begin: int = 0) -> pb.ReadQueriesRequest:
    return pb.ReadQueriesRequest(partition=0, from_offset=begin, id_prefix=prefix)


def test_a_page_ends_though_it_holds_nothing() -> None:
    """A tenant without queries had those of all others read, as often as it liked."""
    read = Stored(1_000, 50)
    page = asyncio.run(read.read(page_of("nobody:")))
    assert not page.queries
    assert page.next_offset == 50
    assert read.looked_at == 51


def test_pages_that_end_early_lead_to_all_queries() -> None:
    read, found, begin = Stored(1_000, 30), [], 0
    while begin >= 0:
        page = asyncio.run(read.read(page_of("acme:", begin)))
        found += [one.query.id for one in page.queries]
        begin = page.next_offset
    assert found == [f"acme:{number}" for number in range(0, 1_000, 100)]


class Counting(ThreadPoolExecutor):
    """Counts the jobs that it was given."""

    jobs = 0

    def submit(self, *args: Any, **named: Any) -> Any:
        """See the base."""
        self.jobs += 1
        return super().submit(*args, **named)


def test_pages_take_few_threads_also_of_callers_that_have_gone() -> None:
    """They held all threads in which routers look up members, positions and single queries."""

    async def run() -> None:
        read, threads = Stored(10), Counting(32)
        asyncio.get_running_loop().set_default_executor(threads)
        read.gate.clear()

        async def asked(count: int) -> list[asyncio.Task[Any]]:
            pages = [asyncio.create_task(read.read(page_of("acme:"))) for _ in range(count)]
            for _ in range(10):
                await asyncio.sleep(0)
            return pages

        try:
            gone = await asked(20)
            assert threads.jobs == registry_definitions.PAGES_AT_A_TIME
            for each in gone:
                each.cancel()
            await asyncio.gather(*gone, return_exceptions=True)
            (later,) = await asked(1)
            assert threads.jobs == registry_definitions.PAGES_AT_A_TIME
        finally:
            read.gate.set()
        assert len((await later).queries) == 1

    asyncio.run(run())
