"""Streams for single searches, of the client for threads."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Condition, Thread
from typing import Any

import grpc
from sirocco_api.v1.search_service_pb2 import SearchManyRequest, SearchRequest

from sirocco_client.calls.kept_searches import (
    IDLE_S,
    BrokenStream,
    FailedSearch,
    Numbered,
    StreamRules,
)
from sirocco_client.calls.searching import GRACE_S, Searching
from sirocco_client.errors import DeadlineExceeded


class _Stream:
    """One open stream.

    Attributes:
        address: Of the merger.
        is_busy: A search is under way.
        is_late: That search has no time left; the stream is closed.
        until_s: When the search has to be answered, or the idle stream is closed.
        numbered: Its searches.
        responses: The call.
    """

    def __init__(self, address: str, call: Callable[[str, Iterator[Any]], Any]) -> None:
        self.address = address
        self.is_busy = self.is_late = False
        self.until_s = 0.0
        self.numbered = Numbered()
        self._outgoing: SimpleQueue[SearchManyRequest | None] = SimpleQueue()
        self.responses = call(address, iter(self._outgoing.get, None))

    def ask(self, search: SearchRequest) -> None:
        self._outgoing.put(self.numbered.request(search))

    def close(self) -> None:
        # The end of the requests ends gRPC's thread that waits for them.
        self._outgoing.put(None)
        self.responses.cancel()


class KeptStreams:
    """The streams of one client. Safe to share between threads."""

    def __init__(
        self,
        call: Callable[[str, Iterator[Any]], Any],
        clock_s: Callable[[], float] = time.monotonic,
        idle_s: float = IDLE_S,
    ) -> None:
        """Starts without streams.

        Args:
            call: Calls `SearchMany` at the address of a merger with these requests.
            clock_s: The time, seconds.
            idle_s: After which time without a search a stream is closed.
        """
        self._call = call
        self._clock_s = clock_s
        self._idle_s = idle_s
        self._is_closed = False
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._changed = Condition()
        self._rules = StreamRules()
        self._streams: set[_Stream] = set()
        self._free: dict[str, list[_Stream]] = defaultdict(list)
        self._keeper: Thread | None = None
        # When the keeper looks again.
        self._wake_s = 0.0

    def answers(self, address: str, state: Searching, left_s: float) -> bool:
        """Searches on a stream; returns False if the search has to be a call of its own.

        Args:
            address: Of the merger.
            state: The search.
            left_s: Its time limit, seconds.

        Raises:
            FailedSearch: The merger answered with an error, or not in time.
        """
        stream = self._taken(address, left_s + GRACE_S)
        if stream is None:
            return False
        is_sound = False
        try:
            stream.ask(state.request(left_s))
            for response in stream.responses:
                if is_sound := stream.numbered.received(response, state):
                    return True
        except FailedSearch as failed:
            is_sound = failed.is_stream_sound
            raise
        except (grpc.RpcError, ValueError, BrokenStream):
            # ValueError: the channel was closed meanwhile.
            pass
        finally:
            self._give_back(stream, is_sound)
        if stream.is_late:
            raise FailedSearch(DeadlineExceeded("the merger did not answer in time"))
        # Why it broke, a call says: its errors are those of a search.
        with self._changed:
            self._rules.broke(address, self._clock_s())
        state.restart()
        return False

    def close(self) -> None:
        """Closes all streams; searches on them fall back to calls."""
        self._leave_parent()
        with self._changed:
            self._is_closed = True
            streams, self._streams = self._streams, set()
            self._free.clear()
            self._changed.notify()
        for stream in streams:
            stream.close()

    def _taken(self, address: str, limit_s: float) -> _Stream | None:
        self._leave_parent()
        with self._changed:
            now_s = self._clock_s()
            is_warm = self._rules.begins(now_s)
            stream = self._free_one(address)
            if stream is None and is_warm and not self._is_closed:
                stream = self._opened(address, now_s)
            if stream is None:
                return None
            stream.is_busy = True
            self._keep_until(stream, now_s + limit_s)
            return stream

    def _keep_until(self, stream: _Stream, until_s: float) -> None:
        stream.until_s = until_s
        if until_s < self._wake_s:
            self._changed.notify()

    def _free_one(self, address: str) -> _Stream | None:
        free = self._free[address]
        while free:
            stream = free.pop()
            if stream.responses.is_active():
                return stream
            # The merger ended it, as when it restarts.
            self._streams.discard(stream)
            stream.close()
        return None

    def _opened(self, address: str, now_s: float) -> _Stream | None:
        if not self._rules.may_open(address, len(self._streams), now_s):
            return None
        try:
            if self._keeper is None:
                self._wake_s = 0.0
                keeper = Thread(target=self._keep, name="sirocco-streams", daemon=True)
                keeper.start()
                self._keeper = keeper
            stream = _Stream(address, self._call)
        except RuntimeError:
            # No thread can be started, as when the interpreter ends.
            return None
        self._streams.add(stream)
        return stream

    def _give_back(self, stream: _Stream, is_sound: bool) -> None:
        with self._changed:
            is_kept = is_sound and stream in self._streams
            if is_kept:
                stream.is_busy = False
                self._keep_until(stream, self._clock_s() + self._idle_s)
                self._free[stream.address].append(stream)
            else:
                self._streams.discard(stream)
        if not is_kept:
            stream.close()

    def _keep(self) -> None:
        """Closes streams that are idle or whose search is late; ends after the last one.

        gRPC has no time limit for a message of a stream.
        """
        while True:
            with self._changed:
                over = self._over()
                if not over and not self._streams:
                    self._keeper = None
                    return
                if not over:
                    self._wake_s = min(stream.until_s for stream in self._streams)
                    self._changed.wait(max(0.0, self._wake_s - self._clock_s()))
            for stream in over:
                stream.close()

    def _over(self) -> list[_Stream]:
        now_s = self._clock_s()
        over = [stream for stream in self._streams if stream.until_s <= now_s]
        for stream in over:
            stream.is_late = stream.is_busy
            self._streams.discard(stream)
            if not stream.is_busy:
                self._free[stream.address].remove(stream)
        return over

    def _leave_parent(self) -> None:
        """Forgets all streams in a forked process: they and the lock are its parent's."""
        if self._process != os.getpid():
            # Held: gRPC would cancel calls that nobody knows, with locks of the parent.
            self._of_parent = self._streams, self._free
            self._begin()
