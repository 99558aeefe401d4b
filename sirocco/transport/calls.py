"""Calls over topics: what generated gRPC code asks of a channel and a server, on the log.

A record is one request: its headers hold the path of the method and the metadata, its value the
serialised message. A stub made with a `LogChannel` appends; `LogServer.dispatch` hands a poll
batch to the servicers that generated code has added to it. Nobody answers: a call is done when
the log has its requests, and its response is the empty message.

    stub = SlotServiceStub(LogChannel(producer, "slots", partition=7))
    call = stub.Route.future(iter(requests))           # appends; returns at once
    call.add_done_callback(lambda call: ...)           # from `producer.poll`, when acknowledged

    server = LogServer(rejected)
    add_SlotServiceServicer_to_server(servicer, server)
    server.dispatch(consumer.poll(1000, 0.1))
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Any, Final, Generic, NoReturn, Protocol, TypeAlias, TypeVar

from sirocco.transport.errors import TransportError, TransportUnavailable
from sirocco.transport.log import Headers, OnAck, Producer, Record

METHOD_HEADER: Final = "method"
# Metadata of a call that becomes the key of its records (compacted topics) instead of a header.
KEY_METADATA: Final = "record-key-bin"

Metadata: TypeAlias = Sequence[tuple[str, str | bytes]]
Rejected: TypeAlias = Callable[[Record, str], None]
_Response = TypeVar("_Response")


class LogChannel:
    """One Kafka partition of a topic as the target of generated stubs.

    Args:
        producer: appends; its callbacks complete the calls.
        topic: where to.
        partition: the Kafka partition.
    """

    def __init__(self, producer: Producer, topic: str, partition: int) -> None:
        self._producer = producer
        self._topic = topic
        self._partition = partition

    def stream_unary(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes],
        response_deserializer: Callable[[bytes], _Response],
        _registered_method: bool = False,
    ) -> StreamMethod[_Response]:
        """For generated stubs: a method that takes an iterator of requests."""
        return StreamMethod(
            self._producer,
            (self._topic, self._partition),
            method,
            request_serializer,
            response_deserializer,
        )

    def unary_unary(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes],
        response_deserializer: Callable[[bytes], _Response],
        _registered_method: bool = False,
    ) -> UnaryMethod[_Response]:
        """For generated stubs: a method that takes one request."""
        return UnaryMethod(self.stream_unary(method, request_serializer, response_deserializer))

    def unary_stream(self, method: str, *_args: Any, **_kwargs: Any) -> Callable[..., NoReturn]:
        """For generated stubs: refuses the call, as nothing streams back from a log."""
        return _refuse(method)

    def stream_stream(self, method: str, *_args: Any, **_kwargs: Any) -> Callable[..., NoReturn]:
        """For generated stubs: refuses the call, as nothing streams back from a log."""
        return _refuse(method)


def _refuse(method: str) -> Callable[..., NoReturn]:
    def call(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise TypeError(f"{method}: a method with a response stream cannot be called over a log")

    return call


class LogCall(Generic[_Response]):
    """A call on its way to the log; the part of `grpc.Future` without cancelling.

    Attributes:
        offsets: of its requests acknowledged so far, in order.
    """

    def __init__(self, producer: Producer, response: Callable[[], _Response]) -> None:
        self.offsets: list[int] = []
        self._producer = producer
        self._response = response
        # One more than open requests until the iterator of requests has ended.
        self._open = 1
        self._error: Exception | None = None
        self._callbacks: list[Callable[[LogCall[_Response]], Any]] = []

    def done(self) -> bool:
        """Whether every request is acknowledged or has failed."""
        return self._open == 0

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Waits (polls the producer) until done; returns the first failure, if any.

        Raises:
            TransportUnavailable: not done in `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.done():
            left = 1.0 if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise TransportUnavailable(f"{self._open} requests are not acknowledged")
            self._producer.poll(left)
        return self._error

    def result(self, timeout: float | None = None) -> _Response:
        """As `exception`, but raises the failure, and returns the empty response."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._response()

    def add_done_callback(self, fn: Callable[[LogCall[_Response]], Any]) -> None:
        """Calls `fn` with this call when it is done, from inside `producer.poll`."""
        if self.done():
            fn(self)
        else:
            self._callbacks.append(fn)

    def begin(self) -> None:
        """Counts one more request on its way."""
        self._open += 1

    def settle(self, error: Exception | None, offset: int) -> None:
        """Notes that the log has a request, or never will (`Producer.append`'s `on_ack`)."""
        if error is None:
            self.offsets.append(offset)
        else:
            self._error = self._error or error
        self.finish()

    def finish(self) -> None:
        """Counts one request less on its way; after the last, the callbacks run."""
        self._open -= 1
        if self._open == 0:
            callbacks, self._callbacks = self._callbacks, []
            for fn in callbacks:
                fn(self)


class StreamMethod(Generic[_Response]):
    """A client-streaming method of a stub; each request becomes one record."""

    def __init__(
        self,
        producer: Producer,
        target: tuple[str, int],
        method: str,
        serialize: Callable[[Any], bytes],
        deserialize: Callable[[bytes], _Response],
    ) -> None:
        self._producer = producer
        self._target = target
        self._method = (METHOD_HEADER, method.encode())
        self._serialize = serialize
        self._response = lambda: deserialize(b"")

    def future(
        self,
        request_iterator: Iterable[Any],
        timeout: float | None = None,
        metadata: Metadata | None = None,
        **_options: Any,
    ) -> LogCall[_Response]:
        """Appends all requests and returns without waiting for the log.

        Args:
            request_iterator: messages.
            timeout: ignored, part of the generated signature; `LogCall.result` waits.
            metadata: become headers of each record; `KEY_METADATA` becomes its key.

        Raises:
            TransportError: as `Producer.append`; the requests before are appended.
        """
        topic, partition = self._target
        key, headers = self._headers(metadata or ())
        call = LogCall(self._producer, self._response)
        for request in request_iterator:
            value = self._serialize(request)
            call.begin()
            try:
                self._producer.append(
                    topic, partition, value, key=key, headers=headers, on_ack=call.settle
                )
            except TransportError:
                call.finish()
                raise
        call.finish()
        return call

    def send(
        self,
        request: Any,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        on_ack: OnAck | None = None,
    ) -> int:
        """Appends one request without a call to wait for; for large numbers of requests.

        Args:
            request: message.
            key: of its record.
            headers: of its record, besides the path of the method.
            on_ack: as of `Producer.append`.

        Returns:
            Its size, bytes.

        Raises:
            TransportError: as `Producer.append`.
        """
        topic, partition = self._target
        value = self._serialize(request)
        self._producer.append(
            topic, partition, value, key=key, headers=(self._method, *headers), on_ack=on_ack
        )
        return len(value)

    def __call__(
        self,
        request_iterator: Iterable[Any],
        timeout: float | None = None,
        metadata: Metadata | None = None,
        **_options: Any,
    ) -> _Response:
        """Appends all requests and waits until the log has them."""
        return self.future(request_iterator, metadata=metadata).result(timeout)

    def _headers(self, metadata: Metadata) -> tuple[bytes | None, Headers]:
        key: bytes | None = None
        headers = [self._method]
        for name, content in metadata:
            encoded = content.encode() if isinstance(content, str) else content
            if name == KEY_METADATA:
                key = encoded
            else:
                headers.append((name, encoded))
        return key, tuple(headers)


class UnaryMethod(Generic[_Response]):
    """A method of a stub with a single request."""

    def __init__(self, stream: StreamMethod[_Response]) -> None:
        self._stream = stream

    def future(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: Metadata | None = None,
        **_options: Any,
    ) -> LogCall[_Response]:
        """See `StreamMethod.future`."""
        return self._stream.future((request,), metadata=metadata)

    def __call__(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: Metadata | None = None,
        **_options: Any,
    ) -> _Response:
        """Appends the request and waits until the log has it."""
        return self._stream((request,), timeout, metadata)


class LogContext:
    """What a servicer can learn about a call that arrived over a log.

    Attributes:
        records: one per request of the call, in the same order, as far as requests have been read;
            they have topic, Kafka partition, offset, timestamp, key and headers.
    """

    def __init__(self, records: list[Record], rejected: Rejected) -> None:
        self.records = records
        self._rejected = rejected

    def reject(self, record: Record, reason: str) -> None:
        """Rejects one record like an undecodable one; for requests that are invalid."""
        self._rejected(record, reason)

    def invocation_metadata(self) -> tuple[tuple[str, bytes], ...]:
        """Metadata of the first request; each record's `headers` hold its own."""
        return tuple(pair for pair in self.records[0].headers if pair[0] != METHOD_HEADER)

    def is_active(self) -> bool:
        """Returns True: there is no other end that could cancel."""
        return True

    def abort(self, code: Any, details: str) -> NoReturn:
        """Ends the dispatch with an error, as nobody waits for a status."""
        raise RuntimeError(f"{details} ({code})")

    def set_code(self, code: Any) -> None:
        """Ignored; for generated base classes, which raise right afterwards."""

    def set_details(self, details: str) -> None:
        """Ignored; for generated base classes, which raise right afterwards."""


class _Handler(Protocol):
    """What generated code registers for a method (`grpc.RpcMethodHandler`)."""

    request_deserializer: Callable[[bytes], Any]
    stream_unary: Callable[[Iterator[Any], LogContext], Any] | None
    unary_unary: Callable[[Any, LogContext], Any] | None


class LogServer:
    """Where generated code adds servicers, and where poll batches are dispatched.

    Args:
        rejected: takes records of unknown methods and values that cannot be decoded, with the
            reason, in log order within each method; the others are dispatched.
    """

    def __init__(self, rejected: Rejected) -> None:
        self._rejected = rejected
        self._handlers: dict[bytes, _Handler] = {}

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Sequence[Any]) -> None:
        """For generated code; it adds the same handlers again as registered ones."""

    def add_registered_method_handlers(
        self, service_name: str, method_handlers: dict[str, Any]
    ) -> None:
        """For generated code.

        Raises:
            TypeError: a method has a response stream.
        """
        for name, handler in method_handlers.items():
            if handler.response_streaming:
                raise TypeError(f"{service_name}/{name}: a log has no way back for a stream")
            self._handlers[f"/{service_name}/{name}".encode()] = handler

    def dispatch(self, records: Iterable[Record]) -> None:
        """Calls the servicers for a poll batch, in its order.

        Consecutive records of one method are one call of a client-streaming method, or one call
        each of a method with a single request.

        Raises:
            Exception: whatever a servicer raises; records after that call were not dispatched.
        """
        for path, group in groupby(records, _method_of):
            handler = self._handlers.get(path)
            if handler is None:
                reason = f"unknown method {path!r}" if path else "no method header"
                for record in group:
                    self._rejected(record, reason)
                continue
            self._call(handler, group)

    def _call(self, handler: _Handler, group: Iterator[Record]) -> None:
        context = LogContext([], self._rejected)
        requests = self._decoded(handler, group, context.records)
        first = next(requests, None)
        if first is None:
            return
        if handler.stream_unary is not None:
            handler.stream_unary(chain((first,), requests), context)
        elif handler.unary_unary is not None:
            for request in chain((first,), requests):
                handler.unary_unary(request, LogContext(context.records[-1:], self._rejected))
        # Records that a servicer leaves unread are still rejected if they are undecodable.
        for _ in requests:
            pass

    def _decoded(
        self, handler: _Handler, group: Iterator[Record], records: list[Record]
    ) -> Iterator[Any]:
        """Yields the requests of records; the record of each is added to `records` before.

        One at a time: a message is read while it is in the processor's cache, and the next one
        reuses its memory.
        """
        for record in group:
            try:
                request = handler.request_deserializer(record.value)
            except Exception as error:
                # Whatever a decoder raises is the fault of this record, not of the stream.
                self._rejected(record, f"undecodable: {type(error).__name__}: {error}")
                continue
            records.append(record)
            yield request
            del request


def _method_of(record: Record) -> bytes:
    """Returns the path in the record's headers; empty if there is none."""
    for name, content in record.headers:
        if name == METHOD_HEADER:
            return content
    return b""
