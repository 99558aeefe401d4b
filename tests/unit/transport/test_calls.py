"""Unmodified generated stubs and servicers over the embedded log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sirocco.transport.calls import KEY_METADATA, LogCall, LogChannel, LogContext, LogServer
from sirocco.transport.errors import Closed, RecordTooLarge, TransportUnavailable
from sirocco.transport.log import RECORD_BYTES_MAX, Record, TopicSpec
from sirocco.transport.memory_log import MemoryLog


@pytest.fixture
def log() -> Iterator[MemoryLog]:
    made = MemoryLog()
    made.create_topics([TopicSpec("hop", 2)])
    yield made
    made.close()


class Seen:
    """Calls that a servicer received: (method, [(number, offset)])."""

    def __init__(self, generated: Any) -> None:
        self.calls: list[tuple[str, list[tuple[int, int]]]] = []
        self.contexts: list[LogContext] = []
        self.rejected: list[tuple[int, str]] = []
        self.server = LogServer(
            lambda record, reason: self.rejected.append((record.offset, reason))
        )
        note = self._note

        class Servicer(generated.services.EchoServiceServicer):
            def Take(self, request_iterator: Any, context: Any) -> None:  # noqa: N802
                note("Take", request_iterator, context)

            def TakeOther(self, request_iterator: Any, context: Any) -> None:  # noqa: N802
                note("TakeOther", request_iterator, context)

            def TakeOne(self, request: Any, context: Any) -> None:  # noqa: N802
                note("TakeOne", iter([request]), context)

        generated.services.add_EchoServiceServicer_to_server(Servicer(), self.server)

    def _note(self, method: str, requests: Iterator[Any], context: LogContext) -> None:
        numbers = [request.number for request in requests]
        offsets = [record.offset for record in context.records]
        self.calls.append((method, list(zip(numbers, offsets, strict=True))))
        self.contexts.append(context)

    def read(self, log: MemoryLog, partition: int = 0) -> None:
        consumer = log.consumer("c")
        consumer.assign({("hop", partition): 0})
        self.server.dispatch(consumer.poll(1000, 0.0))
        consumer.close()


def test_consecutive_records_of_a_method_are_one_call(log: MemoryLog, generated: Any) -> None:
    stub = generated.services.EchoServiceStub(LogChannel(log.producer("p"), "hop", 0))
    request = generated.messages.TakeRequest
    stub.Take(iter([request(number=1), request(number=2)]))
    stub.Take(iter([request(number=3)]))
    stub.TakeOther(iter([request(number=4)]))
    stub.TakeOne(request(number=5))
    stub.TakeOne(request(number=6))
    stub.Take(iter([request(number=7)]))
    seen = Seen(generated)
    seen.read(log)
    assert seen.calls == [
        ("Take", [(1, 0), (2, 1), (3, 2)]),
        ("TakeOther", [(4, 3)]),
        ("TakeOne", [(5, 4)]),
        ("TakeOne", [(6, 5)]),
        ("Take", [(7, 6)]),
    ]
    assert seen.rejected == []


def test_a_call_is_done_when_the_log_has_its_requests(log: MemoryLog, generated: Any) -> None:
    producer = log.producer("p")
    stub = generated.services.EchoServiceStub(LogChannel(producer, "hop", 1))
    request = generated.messages.TakeRequest
    call = stub.Take.future(iter([request(number=n) for n in range(3)]))
    reported: list[LogCall[Any]] = []
    call.add_done_callback(reported.append)
    assert (call.done(), reported) == (False, [])
    producer.poll(0.0)
    assert (call.done(), reported, call.offsets) == (True, [call], [0, 1, 2])
    call.add_done_callback(reported.append)
    assert reported == [call, call]
    assert call.result() == stub.Take(iter([]))
    assert stub.TakeOne.future(request()).result().ByteSize() == 0
    assert stub.Take.future(iter([])).done(), "a call without requests is done at once"


def test_an_unacknowledged_call_times_out(log: MemoryLog) -> None:
    call: LogCall[None] = LogCall(log.producer("p"), lambda: None)
    call.begin()
    call.finish()
    with pytest.raises(TransportUnavailable, match="1 requests"):
        call.result(timeout=0.01)


def test_failures_reach_the_caller(log: MemoryLog, generated: Any) -> None:
    producer = log.producer("p")
    stub = generated.services.EchoServiceStub(LogChannel(producer, "hop", 0))
    request = generated.messages.TakeRequest
    with pytest.raises(RecordTooLarge):
        stub.Take(iter([request(number=1), request(text="x" * RECORD_BYTES_MAX)]))
    assert log.bounds("hop", 0) == (0, 1), "the requests before are appended"
    call: LogCall[None] = LogCall(producer, lambda: None)
    call.begin()
    call.begin()
    call.finish()
    call.settle(Closed("first"), -1)
    call.settle(Closed("second"), -1)
    with pytest.raises(Closed, match="first"):
        call.result()


def test_metadata_and_key_travel(log: MemoryLog, generated: Any) -> None:
    stub = generated.services.EchoServiceStub(LogChannel(log.producer("p"), "hop", 0))
    request = generated.messages.TakeRequest(number=1)
    stub.TakeOne(request, metadata=((KEY_METADATA, b"\x00k"), ("trace", "t1"), ("x-bin", b"\xff")))
    seen = Seen(generated)
    seen.read(log)
    context = seen.contexts[0]
    assert context.invocation_metadata() == (("trace", b"t1"), ("x-bin", b"\xff"))
    assert context.records[0].key == b"\x00k"
    assert context.records[0].headers[0] == ("method", b"/sirocco.test.v1.EchoService/TakeOne")
    assert context.is_active()


def test_a_request_is_sent_without_a_call(log: MemoryLog, generated: Any) -> None:
    producer = log.producer("p")
    stub = generated.services.EchoServiceStub(LogChannel(producer, "hop", 0))
    request = generated.messages.TakeRequest(number=1, text="one")
    acknowledged: list[tuple[Exception | None, int]] = []
    size = stub.Take.send(request, key=b"k", on_ack=lambda *ack: acknowledged.append(ack))
    assert size == request.ByteSize()
    assert acknowledged == []
    producer.poll(0)
    assert acknowledged == [(None, 0)]
    seen = Seen(generated)
    seen.read(log)
    (record,) = seen.contexts[0].records
    assert record.key == b"k"
    assert record.headers == (("method", b"/sirocco.test.v1.EchoService/Take"),)
    with pytest.raises(RecordTooLarge):
        stub.Take.send(generated.messages.TakeRequest(text="x" * RECORD_BYTES_MAX))


def test_garbage_is_rejected_and_the_rest_continues(log: MemoryLog, generated: Any) -> None:
    producer = log.producer("p")
    stub = generated.services.EchoServiceStub(LogChannel(producer, "hop", 0))
    request = generated.messages.TakeRequest
    method = ("method", b"/sirocco.test.v1.EchoService/Take")
    stub.Take(iter([request(number=1)]))
    producer.append("hop", 0, b"\xff\xff\xff", headers=(method,))
    stub.Take(iter([request(number=2)]))
    producer.append("hop", 0, b"", headers=(("method", b"/no.Such/Method"),))
    producer.append("hop", 0, b"no headers at all")
    producer.append("hop", 0, b"\xff", headers=(("method", b"\xff\xfe"),))
    producer.append(
        "hop", 0, b"\xff", headers=(("method", b"/sirocco.test.v1.EchoService/TakeOne"),)
    )
    stub.Take(iter([request(number=3)]))
    seen = Seen(generated)
    seen.read(log)
    assert seen.calls == [("Take", [(1, 0), (2, 2)]), ("Take", [(3, 7)])]
    assert [offset for offset, _ in seen.rejected] == [1, 3, 4, 5, 6]
    reasons = [reason.split(":")[0] for _, reason in seen.rejected]
    assert reasons[0] == reasons[4] == "undecodable"
    assert reasons[1:4] == [
        "unknown method b'/no.Such/Method'",
        "no method header",
        "unknown method b'\\xff\\xfe'",
    ]


def test_a_servicer_may_reject_and_its_errors_end_the_dispatch(generated: Any) -> None:
    rejected: list[tuple[Record, str]] = []
    server = LogServer(lambda record, reason: rejected.append((record, reason)))

    class Servicer(generated.services.EchoServiceServicer):
        def Take(self, request_iterator: Any, context: Any) -> None:  # noqa: N802
            for request, record in zip(request_iterator, context.records, strict=True):
                if not request.number:
                    context.reject(record, "number: missing")
                elif request.number == 2:
                    context.abort("INTERNAL", "broken")

    generated.services.add_EchoServiceServicer_to_server(Servicer(), server)
    request = generated.messages.TakeRequest

    def record(method: str, number: int) -> Record:
        path = f"/sirocco.test.v1.EchoService/{method}".encode()
        value = request(number=number).SerializeToString()
        return Record(
            topic="hop",
            partition=0,
            offset=number,
            timestamp_ms=0,
            key=None,
            value=value,
            headers=(("method", path),),
        )

    server.dispatch([record("Take", 0), record("Take", 1)])
    assert [(r.offset, reason) for r, reason in rejected] == [(0, "number: missing")]
    with pytest.raises(RuntimeError, match="broken"):
        server.dispatch([record("Take", 2)])
    with pytest.raises(NotImplementedError):
        server.dispatch([record("TakeOther", 1)])


def test_requests_are_decoded_one_at_a_time_and_to_the_end(generated: Any) -> None:
    rejected: list[int] = []
    server = LogServer(lambda record, reason: rejected.append(record.offset))
    seen: list[tuple[int, list[int], list[int]]] = []

    class Servicer(generated.services.EchoServiceServicer):
        def Take(self, request_iterator: Any, context: Any) -> None:  # noqa: N802
            for request in request_iterator:
                offsets = [record.offset for record in context.records]
                seen.append((request.number, offsets, list(rejected)))
                if request.number == 3:
                    return

    generated.services.add_EchoServiceServicer_to_server(Servicer(), server)
    values = [generated.messages.TakeRequest(number=each).SerializeToString() for each in (1, 3, 5)]
    method = ("method", b"/sirocco.test.v1.EchoService/Take")
    server.dispatch(
        Record(
            topic="hop",
            partition=0,
            offset=offset,
            timestamp_ms=0,
            key=None,
            value=value,
            headers=(method,),
        )
        for offset, value in enumerate([values[0], b"\xff", values[1], b"\xff", values[2]])
    )
    assert seen == [(1, [0], []), (3, [0, 2], [1])]
    assert rejected == [1, 3], "also what the servicer has not come to"


def test_methods_that_stream_back_are_refused(log: MemoryLog, generated: Any) -> None:
    stub = generated.services.AnswerServiceStub(LogChannel(log.producer("p"), "hop", 0))
    for call in (stub.Ask, stub.Talk):
        with pytest.raises(TypeError, match="cannot be called over a log"):
            call(generated.messages.TakeRequest())
    with pytest.raises(TypeError, match="no way back"):
        generated.services.add_AnswerServiceServicer_to_server(
            generated.services.AnswerServiceServicer(), LogServer(lambda *_: None)
        )
