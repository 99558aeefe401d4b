"""One interface for both clients: the asyncio client runs in a thread of its own.

Scenarios are written once, against the interface of the sync client.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Self

from sirocco_client import AsyncClient, Client, Retry

CALL_TIMEOUT_S = 300.0

# Retries follow at once: the scripts count failures, and no test waits for one to pass.
QUICK = Retry(attempts=6, initial_ms=1, longest_ms=5)


class AsyncDriver:
    """An `AsyncClient` with the interface of a `Client`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.client = AsyncClient(*args, **options)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(CALL_TIMEOUT_S)

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        async def inside() -> Any:
            found = function(*args, **options)
            return await found if asyncio.iscoroutine(found) else found

        return self.run(inside())

    def iterate(self, source: AsyncIterator[Any]) -> Iterator[Any]:
        end = object()
        while (item := self.call(lambda: anext(source, end))) is not end:
            yield item

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.client, name)
        if name in (
            "list",
            "register_many",
            "update_many",
            "unregister_many",
            "search_parts",
        ):
            return lambda *args, **options: self.iterate(found(*args, **options))
        return lambda *args, **options: self.call(found, *args, **options)

    def publisher(self, *args: Any, **options: Any) -> Blocking:
        return Blocking(self, self.call(self.client.publisher, *args, **options))

    def subscribe(self, *args: Any, **options: Any) -> Blocking:
        return Blocking(self, self.call(self.client.subscribe, *args, **options))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.call(self.client.close)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(120.0)
        self.loop.close()


class Blocking:
    """An async publisher or subscription with the interface of a sync one."""

    def __init__(self, driver: AsyncDriver, inner: Any) -> None:
        self.driver = driver
        self.inner = inner

    def __enter__(self) -> Self:
        self.driver.call(self.inner.__aenter__)
        return self

    def __exit__(self, *error: Any) -> None:
        self.driver.call(self.inner.__aexit__, *error)

    def __iter__(self) -> Iterator[Any]:
        return self.driver.iterate(self.driver.call(self.inner.__aiter__))

    def batches(self) -> Iterator[Any]:
        return self.driver.iterate(self.driver.call(self.inner.batches))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not callable(found):
            return found
        return lambda *args, **options: self.driver.call(found, *args, **options)


DRIVERS: dict[str, Callable[..., Any]] = {"threads": Client, "asyncio": AsyncDriver}
