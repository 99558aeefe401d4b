"""A merger on a real gRPC server that answers searches as a test plans."""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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
        wait_s: Before them.
    """

    responses: Sequence[pb.SearchResponse] = ()
    failure: Failure | None = None
    wait_s: float = 0.0


@dataclass
class FakeMerger:
    """A running fake merger; the last plan is used for all further searches."""

    plans: deque[Plan] = field(default_factory=deque)
    requests: list[pb.SearchRequest] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._server = grpc.server(ThreadPoolExecutor(8))
        add_SearchServiceServicer_to_server(_Search(self), self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(0).wait()


class _Search(SearchServiceServicer):
    def __init__(self, merger: FakeMerger) -> None:
        self._merger = merger

    def Search(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: N802
        plans = self._merger.plans
        plan = plans.popleft() if len(plans) > 1 else plans[0]
        self._merger.requests.append(request)
        time.sleep(plan.wait_s)
        yield from plan.responses
        if plan.failure is not None:
            plan.failure.end(context)


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
