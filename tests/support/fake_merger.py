"""A merger on a real gRPC server that answers searches as a test plans."""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
from sirocco_api.v1 import search_service_pb2 as pb
from sirocco_api.v1.search_service_pb2_grpc import (
    SearchServiceServicer,
    add_SearchServiceServicer_to_server,
)

from tests.support.fake_cluster import Failure, fill_objects, joined


@dataclass
class Plan:
    """The answer to one search.

    Attributes:
        responses: In their order.
        failure: After them.
    """

    responses: Sequence[pb.SearchResponse] = ()
    failure: Failure | None = None


@dataclass
class FakeMerger:
    """A running fake merger; the last plan is used for all further searches.

    Attributes:
        plans: What comes.
        has_streams: It knows streams of searches.
        requests: The searches.
        streams, open_streams: How many streams were opened, and are open.
        gate: Searches wait there before their answers.
    """

    plans: deque[Plan] = field(default_factory=deque)
    has_streams: bool = False
    requests: list[pb.SearchRequest] = field(default_factory=list)
    streams: int = 0
    open_streams: int = 0
    gate: threading.Barrier | None = None

    def __post_init__(self) -> None:
        self.lock = threading.Lock()
        self._server = grpc.server(ThreadPoolExecutor(32))
        servicer = _Streams(self) if self.has_streams else _Search(self)
        add_SearchServiceServicer_to_server(servicer, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(0).wait()


class _Search(SearchServiceServicer):
    def __init__(self, merger: FakeMerger) -> None:
        self._merger = merger

    def Search(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: N802
        plan = self.taken(request)
        yield from plan.responses
        if plan.failure is not None:
            plan.failure.end(context)

    def taken(self, request: pb.SearchRequest) -> Plan:
        """Returns the plan of a search, once the gate is open."""
        plans = self._merger.plans
        plan = plans.popleft() if len(plans) > 1 else plans[0]
        self._merger.requests.append(request)
        if (gate := self._merger.gate) is not None:
            with suppress(threading.BrokenBarrierError):
                gate.wait(60)
        return plan


class _Streams(_Search):
    def SearchMany(  # noqa: N802
        self, requests: Iterator[Any], context: grpc.ServicerContext
    ) -> Iterator[Any]:
        with self._merger.lock:
            self._merger.streams += 1
            self._merger.open_streams += 1
        context.add_callback(self._ended)
        for request in requests:
            for each in request.searches:
                plan = self.taken(each.search)
                responses, error = list(plan.responses), plan.failure and plan.failure.error
                # An error comes with the last response.
                last = responses.pop() if error and responses else None
                for response in responses:
                    yield _message(each.number, response=response)
                if error is not None:
                    yield _message(each.number, response=last, error=error)
                elif plan.failure is not None:
                    plan.failure.end(context)
                elif not any(one.HasField("end") for one in responses):
                    # The end of an answer that has none is that of the stream.
                    return

    def _ended(self) -> None:
        with self._merger.lock:
            self._merger.open_streams -= 1


def _message(number: int, **members: Any) -> pb.SearchManyResponse:
    # With all responses of an answer in one message, no test would see them come one by one.
    return pb.SearchManyResponse(responses=[pb.NumberedResponse(number=number, **members)])


def objects_response(
    ids: list[int | str], values: Sequence[float] = (), numbers: Sequence[int] = ()
) -> pb.SearchResponse:
    """Returns objects of an answer, with event keys of session 7."""
    response = pb.SearchResponse(values=array("d", values).tobytes())
    fill_objects(response.objects, ids)
    count = len(ids)
    response.events.sessions = array("Q", [7] * count).tobytes()
    response.events.numbers = array("Q", numbers or range(1, count + 1)).tobytes()
    response.events.arrivals_ms = array("q", [1_000] * count).tobytes()
    return response


def terms_response(terms: dict[str, int]) -> pb.SearchResponse:
    """Returns terms of an answer."""
    response = pb.SearchResponse()
    response.terms.terms, response.terms.term_offsets = joined(list(terms))
    response.terms.counts = array("Q", terms.values()).tobytes()
    return response


def end_response(missing: Sequence[int] = ()) -> pb.SearchResponse:
    """Returns the end of an answer."""
    return pb.SearchResponse(end=pb.SearchEnd(now_ms=123, slots=4, missing_slots=missing))
