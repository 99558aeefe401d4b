"""Reads server-sent events as a browser does, and resumes as one."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

# Longer than any test reads; far shorter than the time limit of one.
LAST_S = 300.0


@dataclass
class EventSource:
    """A browser's view of a stream.

    Attributes:
        base: URL of the gateway.
        subscriber: whose notifications.
        last_id: id of the last event, which the next connection sends.
        received: data of the events so far.
        comments: comments so far.
    """

    base: str
    subscriber: str
    last_id: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    received: list[Any] = field(default_factory=list, init=False)
    kinds: list[str] = field(default_factory=list, init=False)
    comments: list[str] = field(default_factory=list, init=False)
    opened: threading.Event = field(default_factory=threading.Event, init=False)

    def read(self, count: int, timeout_s: float = 120.0) -> None:
        """Connects once, and reads until so many events have been received, or the stream ends."""
        path = f"{self.base}/v1/subscribers/{self.subscriber}/notifications"
        headers = {**self.headers, **({"Last-Event-ID": self.last_id} if self.last_id else {})}
        with httpx.stream("GET", path, headers=headers, timeout=timeout_s) as answer:
            answer.raise_for_status()
            assert answer.headers["content-type"].startswith("text/event-stream")
            self._take(answer.iter_lines(), count, time.monotonic() + LAST_S)

    def _take(self, lines: Iterator[str], count: int, end_s: float) -> None:
        kind, data, place = "message", "", None
        for line in lines:
            # Comments arrive for ever.
            assert time.monotonic() < end_s, f"{len(self.received)} of {count} events"
            if line.startswith(":"):
                self.comments.append(line[1:].strip())
            elif line.startswith("id: "):
                place = line[4:]
            elif line.startswith("data: "):
                data = line[6:]
            elif line.startswith("event: "):
                kind = line[7:]
            elif not line:
                # As the standard has it: an id counts without data, too.
                if place is not None:
                    self.last_id = place
                    self.opened.set()
                if data:
                    self.received.append(json.loads(data))
                    self.kinds.append(kind)
                    if len(self.received) >= count:
                        return
                kind, data, place = "message", "", None

    @contextmanager
    def reading(self, count: int, timeout_s: float = 120.0) -> Iterator[threading.Thread]:
        """Reads in a thread; the stream is open within the context, and it ends after it."""
        thread = threading.Thread(target=self.read, args=(count, timeout_s), daemon=True)
        thread.start()
        assert self.opened.wait(timeout_s)
        yield thread
        thread.join(timeout_s)
        assert not thread.is_alive(), f"{len(self.received)} of {count} events"
