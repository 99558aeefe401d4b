"""Appending to Kafka: idempotent, and in transactions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer, ThrottleEvent

from sirocco.transport.errors import (
    AppendFailed,
    Closed,
    FencedError,
    LogFull,
    RecordTooLarge,
    TransactionAborted,
    TransportError,
    TransportUnavailable,
)
from sirocco.transport.kafka_errors import LOGGER, cause_of, made, typed
from sirocco.transport.kafka_settings import (
    producer_config,
)
from sirocco.transport.kafka_topics import KafkaTopics
from sirocco.transport.log import (
    RECORD_BYTES_MAX,
    Headers,
    OnAck,
    WaitingAppends,
    record_bytes,
)


class _Lane:
    """Counts the records to one Kafka partition: without an answer, and answered so far."""

    __slots__ = ("answered", "waiting")

    def __init__(self) -> None:
        self.waiting = 0
        self.answered = 0


class KafkaProducer:
    """`Producer` on Kafka."""

    def __init__(
        self, log: KafkaTopics, name: str, transactional_id: str | None, append_wait_s: float
    ) -> None:
        self.name: Final = name
        self._log = log
        self._times: Final = log.times
        self._transactional = transactional_id is not None
        self._append_wait_s = append_wait_s
        self._closed = False
        self._has_begun = False
        # The client's own count includes events besides records.
        self._count_lock = threading.Lock()
        self._pending = 0
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._polls = 0
        # While a quota of Kafka's delays answers.
        self._throttled_until_s = 0.0
        # The first error after which the client refuses everything.
        self._fatal: TransportError | None = None
        config = producer_config(log.settings, name, transactional_id, log.times)
        own = {"throttle_cb": self._note_throttled}
        self._producer = made(lambda: Producer(config | own, logger=LOGGER), name)
        # The client asks for its producer id at once. Without a connection by then it asks again
        # after 500 ms, and the first append or a take-over would wait as long.
        with suppress(KafkaException):
            self._producer.list_topics(timeout=self._times.connect_s)

    def append(
        self,
        topic: str,
        partition: int,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        on_ack: OnAck | None = None,
    ) -> None:
        """See `Producer.append`."""
        size = record_bytes(key, value, headers)
        if size > RECORD_BYTES_MAX:
            raise RecordTooLarge(topic, size, RECORD_BYTES_MAX)
        self._check_live()
        self._log.check(topic, partition)
        lane = self._lane(topic, partition)
        delivered = self._delivered(lane, f"append to {topic}/{partition}", on_ack)
        deadline: float | None = None
        while True:
            try:
                self._producer.produce(
                    self._log.outer(topic),
                    value=None if key is not None and not value else value,
                    key=key,
                    partition=partition,
                    timestamp=timestamp_ms or 0,
                    headers=list(headers),
                    on_delivery=delivered,
                )
                self._count(lane, 1)
                return
            except BufferError as error:
                now = time.monotonic()
                deadline = now + self._append_wait_s if deadline is None else deadline
                if now >= deadline:
                    raise LogFull(f"{self.name}: the queue is full") from error
                self.poll(min(0.05, deadline - now))
                self._check_live()
            except KafkaException as error:
                cause = cause_of(error)
                if self._transactional and cause.code() == KafkaError._STATE:
                    if self._has_begun:
                        raise TransactionAborted(f"append to {topic}: it failed") from error
                    raise RuntimeError("append outside a transaction") from error
                self.poll(0.0)  # fetches the reason why the client refuses
                raise self._fatal or typed(cause, f"append to {topic}") from error

    def append_many(
        self,
        topic: str,
        partition: int,
        records: Sequence[tuple[bytes, bytes]],
        *,
        headers: Headers = (),
        on_ack: OnAck | None = None,
    ) -> int:
        """See `Producer.append_many`."""
        largest = max([len(key) + len(value) for key, value in records], default=0)
        largest += record_bytes(None, b"", headers)
        if self._transactional:
            raise RuntimeError("append_many of a transactional producer")
        if largest > RECORD_BYTES_MAX:
            raise RecordTooLarge(topic, largest, RECORD_BYTES_MAX)
        self._check_live()
        self._log.check(topic, partition)
        outer, produce = self._log.outer(topic), self._producer.produce
        listed: list[Any] = list(headers)
        lane = self._lane(topic, partition)
        delivered = self._delivered_one(lane, f"append to {topic}/{partition}", on_ack)
        taken = 0
        try:
            for key, value in records:
                produce(
                    outer,
                    value=value or None,
                    key=key,
                    partition=partition,
                    headers=listed,
                    on_delivery=delivered,
                )
                taken += 1
        except BufferError as error:
            if not taken:
                raise LogFull(f"{self.name}: the queue is full") from error
        except KafkaException as error:
            self.poll(0.0)  # fetches the reason why the client refuses
            raise self._fatal or typed(cause_of(error), f"append to {topic}") from error
        finally:
            self._count(lane, taken)
        return taken

    def _delivered(
        self, lane: _Lane, what: str, on_ack: OnAck | None
    ) -> Callable[[KafkaError | None, Any], None]:
        """Returns what the client calls for each record that the log has or never will."""

        def delivered(error: KafkaError | None, message: Any) -> None:
            self._answered(lane)
            failure = None if error is None else self._lost(error, what)
            if on_ack is not None:
                on_ack(failure, message.offset() if failure is None else -1)

        return delivered

    def _delivered_one(
        self, lane: _Lane, what: str, on_ack: OnAck | None
    ) -> Callable[[KafkaError | None, Any], None]:
        """The same for one of the records of `append_many`."""

        def delivered(error: KafkaError | None, _: Any) -> None:
            self._answered(lane)
            failure = None if error is None else self._lost(error, what)
            if on_ack is not None:
                on_ack(failure, 1)

        return delivered

    def poll(self, timeout_s: float) -> None:
        """See `Producer.poll`."""
        self._polls += 1
        try:
            self._producer.poll(timeout_s)
        except KafkaException as error:  # how the client reports that it cannot continue
            self._note_fatal(cause_of(error))
        if self._fatal is not None and self._pending > 0:
            self._producer.purge()  # the client would keep records that it will never send

    def flush(self, timeout_s: float) -> int:
        """See `Producer.flush`.

        The client's own `flush` makes further calls after a callback has raised, with the exception
        set; one `poll` ends there.
        """
        deadline = time.monotonic() + timeout_s
        while self._pending > 0 and (left := deadline - time.monotonic()) > 0:
            self.poll(left)
        return self._pending

    @property
    def pending(self) -> int:
        """See `Producer.pending`."""
        return self._pending

    def waiting(self) -> list[WaitingAppends]:
        """Returns, for `Log.waiting_appends`, what this producer's appends wait for."""
        if time.monotonic() < self._throttled_until_s:
            return []
        with self._count_lock:
            return [
                WaitingAppends(self.name, topic, partition, lane.answered, self._polls)
                for (topic, partition), lane in self._lanes.items()
                if lane.waiting
            ]

    def init_transactions(self) -> None:
        """See `Producer.init_transactions`."""
        self._transact(self._producer.init_transactions, "init_transactions")

    def begin(self) -> None:
        """See `Producer.begin`."""
        self._transact(lambda _: self._producer.begin_transaction(), "begin")
        self._has_begun = True

    def commit(self) -> None:
        """See `Producer.commit`."""
        self._check_live()
        if self.flush(self._times.transaction_ms / 1000.0) > 0:
            raise TransportUnavailable("commit: records of the transaction are not acknowledged")
        self._transact(self._producer.commit_transaction, "commit")
        self._has_begun = False

    def abort(self) -> None:
        """See `Producer.abort`."""
        self._check_live()
        self._drop_pending()
        self._transact(self._producer.abort_transaction, "abort")
        self._has_begun = False

    def close(self) -> None:
        """See `Producer.close`; an open transaction is left to its timeout or a successor."""
        if self._closed:
            return
        self._closed = True
        self._log.forget(self)
        self._drop_pending()

    def _transact(self, action: Callable[[float], None], what: str) -> None:
        """Runs a step of a transaction; continues after errors that the client calls retriable."""
        self._check_live()
        if not self._transactional:
            raise RuntimeError("no transactional id")
        deadline = time.monotonic() + self._times.transaction_ms / 1000.0
        while True:
            try:
                return action(max(0.1, deadline - time.monotonic()))
            except KafkaException as error:
                cause = cause_of(error)
                if cause.retriable() and time.monotonic() < deadline:
                    continue
                if cause.code() == KafkaError._STATE:
                    raise RuntimeError(f"{what}: {cause.str()}") from error
                if cause.fatal():
                    raise self._note_fatal(cause) from error
                raise typed(cause, what) from error

    def _drop_pending(self) -> None:
        """Gives up every record that is not acknowledged; their callbacks run."""
        if self._pending > 0:
            self._producer.purge()
            self.flush(self._times.call_s)

    def _note_throttled(self, event: ThrottleEvent) -> None:
        until_s = time.monotonic() + event.throttle_time
        self._throttled_until_s = max(self._throttled_until_s, until_s)

    def _lane(self, topic: str, partition: int) -> _Lane:
        if (lane := self._lanes.get((topic, partition))) is None:
            with self._count_lock:
                lane = self._lanes.setdefault((topic, partition), _Lane())
        return lane

    def _count(self, lane: _Lane, taken: int) -> None:
        with self._count_lock:
            self._pending += taken
            lane.waiting += taken

    def _answered(self, lane: _Lane) -> None:
        with self._count_lock:
            self._pending -= 1
            lane.waiting -= 1
            lane.answered += 1

    def _lost(self, error: KafkaError, what: str) -> TransportError:
        """Returns the error of a record that the log will never have: a gap before later ones."""
        if self._fatal is not None:
            return self._fatal
        failure = AppendFailed(f"{what}: {error.name()}: {error.str()}")
        # A transaction is aborted as a whole, and a closing producer takes no more anyway.
        if not self._transactional and not self._closed:
            self._fatal = failure
        return failure

    def _note_fatal(self, cause: KafkaError) -> TransportError:
        """Keeps the first error after which the client refuses everything."""
        if self._fatal is None:
            failure = typed(cause, self.name)
            fenced = isinstance(failure, FencedError)
            self._fatal = failure if fenced else AppendFailed(str(failure))
            LOGGER.error("producer %s cannot continue: %s", self.name, cause)
        return self._fatal

    def _check_live(self) -> None:
        if self._closed:
            raise Closed(self.name)
        if self._fatal is not None:
            raise self._fatal
