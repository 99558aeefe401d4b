"""A cluster in one process on a real gRPC server, which fails as a test plans.

It keeps the promises of the contract and no others: objects of a session are taken in order, each
number once; a stream of notifications follows its cursor as far as its credit allows.
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc
from sirocco_api.v1 import (
    cluster_service_pb2,
    cluster_service_pb2_grpc,
    errors_pb2,
    publish_service_pb2,
    publish_service_pb2_grpc,
    query_pb2,
    query_service_pb2,
    query_service_pb2_grpc,
    receive_service_pb2,
    receive_service_pb2_grpc,
)
from sirocco_client.objects.columns import object_id

ERROR_METADATA = "sirocco-error-bin"


@dataclass
class Failure:
    """How a call ends: with a status, with or without a Sirocco error."""

    status: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE
    error: errors_pb2.Error | None = None

    def end(self, context: grpc.ServicerContext) -> None:
        if self.error is not None:
            context.set_trailing_metadata(((ERROR_METADATA, self.error.SerializeToString()),))
        context.abort(self.status, "as scripted")


@dataclass
class PublishPlan:
    """The behaviour of one publish stream.

    Attributes:
        requests: It fails after this many requests; None: it never does.
        answered: How many of them it answers before that; None: all. With a number, the last
            answers are lost.
        partial: Answers acknowledge only this many objects of each request, the rest with the next.
        hold: It answers nothing before this is set.
    """

    requests: int | None = None
    answered: int | None = None
    partial: int | None = None
    hold: threading.Event | None = None
    failure: Failure = field(default_factory=Failure)


@dataclass
class ReceivePlan:
    """The behaviour of one receive stream: fails after this many matches; None: never."""

    matches: int | None = None
    failure: Failure = field(default_factory=Failure)


class FakeCluster:
    """A running fake cluster; `router` is the address of its router, and of its only merger."""

    def __init__(self, credentials: grpc.ServerCredentials | None = None, port: int = 0) -> None:
        self.lock = threading.Condition()
        # (session, number, id) in the order in which they were taken.
        self.log: list[tuple[int, int, int | str]] = []
        self.rows: list[dict[str, Any]] = []
        self.last: dict[int, int] = {}
        self.publish_requests: list[tuple[int, int, int]] = []
        self.publish_plans: deque[PublishPlan] = deque()
        self.publish_metadata: list[dict[str, Any]] = []
        self.reject: Callable[[int | str], errors_pb2.Error | None] = lambda _id: None
        self.refused: list[int] = []
        self.queries: dict[str, query_service_pb2.RegisteredQuery] = {}
        # By query id, how far back a registration asks; only those that ask.
        self.pasts_ms: dict[str, int] = {}
        self.revision = 0
        self.unary_failures: deque[Failure] = deque()
        self.bulk_plans: deque[int] = deque()
        # Number of requests in bulk calls.
        self.bulk_requests = 0
        # (query id, object id) in the order in which they are delivered; the cursor is an index.
        self.matches: list[tuple[str, int | str]] = []
        self.batch_matches = 7
        self.earliest = 0
        self.receive_plans: deque[ReceivePlan] = deque()
        self.opened: list[receive_service_pb2.Open] = []
        self.uncredited_most = 0
        self.mergers: list[str] = []
        self.describes = 0
        # (number of a describe call, address): that call and later ones list this merger.
        self.merger_comes: tuple[int, str] | None = None
        self.is_stopping = False
        self._server = grpc.server(ThreadPoolExecutor(32))
        publish_service_pb2_grpc.add_PublishServiceServicer_to_server(_Publish(self), self._server)
        query_service_pb2_grpc.add_QueryServiceServicer_to_server(_Queries(self), self._server)
        receive_service_pb2_grpc.add_ReceiveServiceServicer_to_server(_Receive(self), self._server)
        cluster_service_pb2_grpc.add_ClusterServiceServicer_to_server(_Cluster(self), self._server)
        if credentials is None:
            port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        else:
            port = self._server.add_secure_port("127.0.0.1:0", credentials)
        self.router = f"127.0.0.1:{port}"
        self.mergers.append(self.router)
        self._server.start()

    def stop(self) -> None:
        with self.lock:
            self.is_stopping = True
            self.lock.notify_all()
        self._server.stop(0).wait()

    def deliver(self, *matches: tuple[str, int | str]) -> None:
        with self.lock:
            self.matches += matches
            self.lock.notify_all()

    def await_that(self, condition: Callable[[], bool], timeout_s: float = 120.0) -> None:
        with self.lock:
            assert self.lock.wait_for(condition, timeout_s), "did not come to be"

    @property
    def ids(self) -> list[int | str]:
        """The ids of all objects in the log."""
        with self.lock:
            return [each[2] for each in self.log]


class _Publish(publish_service_pb2_grpc.PublishServiceServicer):
    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster

    def Publish(  # noqa: N802
        self,
        request_iterator: Iterator[publish_service_pb2.PublishRequest],
        context: grpc.ServicerContext,
    ) -> Iterator[publish_service_pb2.PublishResponse]:
        with self.cluster.lock:
            plan = self.cluster.publish_plans.popleft() if self.cluster.publish_plans else None
            self.cluster.publish_metadata.append(dict(context.invocation_metadata()))
        plan = plan or PublishPlan()
        if plan.requests == 0:
            plan.failure.end(context)
        for count, request in enumerate(request_iterator, 1):
            response = self.take(request)
            if plan.hold is not None:
                while context.is_active() and not plan.hold.wait(0.05):
                    pass
            if plan.answered is None or count <= plan.answered:
                if plan.partial is not None:
                    first = publish_service_pb2.PublishResponse()
                    first.acknowledged_to = min(
                        request.first_number + plan.partial - 1, response.acknowledged_to
                    )
                    first.rejections.extend(response.rejections)
                    yield first
                if plan.partial is None or count != plan.requests:
                    yield response
            if count == plan.requests:
                plan.failure.end(context)

    def take(
        self, request: publish_service_pb2.PublishRequest
    ) -> publish_service_pb2.PublishResponse:
        cluster, objects = self.cluster, request.objects
        last_number = request.first_number + objects.count - 1
        assert request.acknowledged_to < request.first_number
        assert objects.count == len(objects.ids) // 8 == len(objects.text_offsets) // 4 - 1
        response = publish_service_pb2.PublishResponse()
        with cluster.lock:
            span = (request.session, request.first_number, last_number)
            cluster.publish_requests.append(span)
            last = cluster.last.get(request.session, request.acknowledged_to)
            for row in range(objects.count):
                number = request.first_number + row
                found = object_id(objects, row)
                error = cluster.reject(found)
                if error is not None:
                    response.rejections.add(number=number, error=error)
                if request.first_number > last + 1 or number <= last:
                    continue
                if error is None:
                    cluster.log.append((request.session, number, found))
                else:
                    cluster.refused.append(number)
            if request.first_number <= last + 1:
                cluster.last[request.session] = max(last, last_number)
                response.acknowledged_to = last_number
            response.position_token = f"0.{len(cluster.log)}"
            cluster.lock.notify_all()
        return response


class _Queries(query_service_pb2_grpc.QueryServiceServicer):
    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster

    def fail(self, context: grpc.ServicerContext) -> None:
        with self.cluster.lock:
            failure = self.cluster.unary_failures.popleft() if self.cluster.unary_failures else None
        if failure is not None:
            failure.end(context)

    def put(self, query: query_pb2.Query, request: Any) -> tuple[int, errors_pb2.Error | None]:
        with self.cluster.lock:
            if request.HasField("past_ms"):
                self.cluster.pasts_ms[query.id] = request.past_ms
            known = self.cluster.queries.get(query.id)
            if known is not None and known.query != query:
                return 0, errors_pb2.Error(code="ALREADY_EXISTS", message="unequal", field="id")
            if known is None:
                self.cluster.revision += 1
                known = query_service_pb2.RegisteredQuery(
                    query=query, revision=self.cluster.revision, start_ms=request.start_ms
                )
                self.cluster.queries[query.id] = known
            return known.revision, None

    def RegisterQuery(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self.fail(context)
        revision, error = self.put(request.query, request)
        if error is not None:
            Failure(grpc.StatusCode.ALREADY_EXISTS, error).end(context)
        return query_service_pb2.RegisterQueryResponse(revision=revision)

    def UpdateQuery(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self.fail(context)
        with self.cluster.lock:
            self._known(request.query.id, context)
            del self.cluster.queries[request.query.id]
            revision, _ = self.put(request.query, request)
        return query_service_pb2.UpdateQueryResponse(revision=revision)

    def UnregisterQuery(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        with self.cluster.lock:
            self._known(request.id, context)
            del self.cluster.queries[request.id]
        self.fail(context)
        return query_service_pb2.UnregisterQueryResponse(revision=1)

    def GetQuery(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self.fail(context)
        with self.cluster.lock:
            found = self._known(request.id, context)
        return query_service_pb2.GetQueryResponse(registered_query=found)

    def _known(self, query_id: str, context: grpc.ServicerContext) -> Any:
        if query_id not in self.cluster.queries:
            error = errors_pb2.Error(code="NOT_FOUND", message=f"no query {query_id}", field="id")
            Failure(grpc.StatusCode.NOT_FOUND, error).end(context)
        return self.cluster.queries[query_id]

    def ListQueries(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self.fail(context)
        size = 3
        begin = int(request.page_token or 0)
        with self.cluster.lock:
            found = [
                each
                for each in self.cluster.queries.values()
                if request.subscriber in ("", each.query.subscriber)
            ]
        token = str(begin + size) if begin + size < len(found) else ""
        return query_service_pb2.ListQueriesResponse(
            registered_queries=found[begin : begin + size], next_page_token=token
        )

    def RegisterQueries(  # noqa: N802
        self, request_iterator: Iterator[Any], context: grpc.ServicerContext
    ) -> Iterator[Any]:
        """A plan is the number of requests after which the answer is lost and the stream fails."""
        for request, is_lost in self._planned(request_iterator):
            results = [self.put(query, request) for query in request.queries]
            yield self._response(
                query_service_pb2.RegisterQueriesResponse, results, is_lost, context
            )

    def UpdateQueries(  # noqa: N802
        self, request_iterator: Iterator[Any], context: grpc.ServicerContext
    ) -> Iterator[Any]:
        for request, is_lost in self._planned(request_iterator):
            results = []
            for query in request.queries:
                with self.cluster.lock:
                    known = self.cluster.queries.pop(query.id, None)
                    results.append(self.put(query, request) if known else _missing(query.id))
            yield self._response(query_service_pb2.UpdateQueriesResponse, results, is_lost, context)

    def UnregisterQueries(  # noqa: N802
        self, request_iterator: Iterator[Any], context: grpc.ServicerContext
    ) -> Iterator[Any]:
        for request, is_lost in self._planned(request_iterator):
            results: list[tuple[int, errors_pb2.Error | None]] = []
            for name in request.ids:
                with self.cluster.lock:
                    known = self.cluster.queries.pop(name, None)
                results.append((1, None) if known else _missing(name))
            yield self._response(
                query_service_pb2.UnregisterQueriesResponse, results, is_lost, context
            )

    def _planned(self, requests: Iterator[Any]) -> Iterator[tuple[Any, bool]]:
        with self.cluster.lock:
            plan = self.cluster.bulk_plans.popleft() if self.cluster.bulk_plans else None
        for count, request in enumerate(requests, 1):
            self.cluster.bulk_requests += 1
            yield request, count == plan

    def _response(
        self,
        kind: Any,
        results: list[tuple[int, errors_pb2.Error | None]],
        is_lost: bool,
        context: grpc.ServicerContext,
    ) -> Any:
        if is_lost:
            Failure().end(context)
        response = kind()
        for revision, error in results:
            response.results.add(revision=revision, error=error)
        return response


def _missing(query_id: str) -> tuple[int, errors_pb2.Error]:
    return 0, errors_pb2.Error(code="NOT_FOUND", message=f"no query {query_id}", field="id")


class _Receive(receive_service_pb2_grpc.ReceiveServiceServicer):
    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster

    def Receive(  # noqa: N802
        self,
        request_iterator: Iterator[receive_service_pb2.ReceiveRequest],
        context: grpc.ServicerContext,
    ) -> Iterator[receive_service_pb2.ReceiveResponse]:
        cluster = self.cluster
        opened = next(request_iterator).open
        with cluster.lock:
            plan = cluster.receive_plans.popleft() if cluster.receive_plans else ReceivePlan()
            cluster.opened.append(opened)
            position = self._begin(opened, context)
        if plan.matches == 0:
            plan.failure.end(context)
        yield receive_service_pb2.ReceiveResponse(cursor=str(position))
        credit = _Credit(opened.matches)
        threading.Thread(
            target=self._read_credit, args=(request_iterator, credit), daemon=True
        ).start()
        sent = 0
        while True:
            with cluster.lock:
                cluster.lock.wait_for(
                    lambda at=position: (
                        (at < len(cluster.matches) and credit.matches > 0)
                        or cluster.is_stopping
                        or not context.is_active()
                    ),
                    0.1,
                )
                if cluster.is_stopping or not context.is_active():
                    return
                if position == len(cluster.matches) or credit.matches <= 0:
                    continue
                count = min(credit.matches, cluster.batch_matches)
                if plan.matches is not None:
                    count = min(count, plan.matches - sent)
                part = cluster.matches[position : position + count]
                position += len(part)
                sent += len(part)
                credit.matches -= len(part)
                credit.unconsumed += len(part)
                cluster.uncredited_most = max(cluster.uncredited_most, credit.unconsumed)
                cluster.lock.notify_all()
            yield response_of(part, position)
            if sent == plan.matches:
                plan.failure.end(context)

    def _begin(self, opened: receive_service_pb2.Open, context: grpc.ServicerContext) -> int:
        cluster = self.cluster
        if not opened.cursor:
            return cluster.earliest if opened.from_earliest else len(cluster.matches)
        position = int(opened.cursor)
        if position < cluster.earliest:
            error = errors_pb2.Error(
                code="OUT_OF_RANGE", message="too old", earliest_cursor=str(cluster.earliest)
            )
            Failure(grpc.StatusCode.OUT_OF_RANGE, error).end(context)
        return position

    def _read_credit(self, requests: Iterator[Any], credit: _Credit) -> None:
        try:
            for request in requests:
                with self.cluster.lock:
                    credit.matches += request.credit.matches
                    credit.unconsumed -= request.credit.matches
                    self.cluster.lock.notify_all()
        except grpc.RpcError:
            pass


@dataclass
class _Credit:
    matches: int
    # Sent, and not yet returned as credit by the client.
    unconsumed: int = 0


def response_of(
    matches: Sequence[tuple[str, int | str]], cursor: int
) -> receive_service_pb2.ReceiveResponse:
    """Returns a response with an object row for each distinct id and a row for each query."""
    response = receive_service_pb2.ReceiveResponse(cursor=str(cursor))
    ids = list(dict.fromkeys(each[1] for each in matches))
    queries = list(dict.fromkeys(each[0] for each in matches))
    fill_objects(response.objects, ids)
    count = len(ids)
    response.events.sessions = array("Q", [7] * count).tobytes()
    response.events.numbers = array("Q", range(1, count + 1)).tobytes()
    response.events.arrivals_ms = array("q", [1_000] * count).tobytes()
    response.queries.handles = array("Q", range(len(queries))).tobytes()
    response.queries.ids, response.queries.id_offsets = joined(queries)
    response.matches.objects = array("I", [ids.index(each[1]) for each in matches]).tobytes()
    response.matches.queries = array("I", [queries.index(each[0]) for each in matches]).tobytes()
    return response


def fill_objects(message: Any, ids: list[int | str]) -> None:
    message.count = len(ids)
    message.ids = array("Q", [0 if isinstance(i, str) else i for i in ids]).tobytes()
    message.lon = array("d", [1.5] * len(ids)).tobytes()
    message.lat = array("d", [2.5] * len(ids)).tobytes()
    message.ts_ms = array("q", [-(2**63)] * len(ids)).tobytes()
    message.text, message.text_offsets = joined([f"tëxt {i}" for i in ids])
    if any(isinstance(i, str) for i in ids):
        names = [i if isinstance(i, str) else "" for i in ids]
        message.names, message.name_offsets = joined(names)
    attributes = ['{"a":1}' if i == ids[0] else "" for i in ids]
    message.attributes, message.attribute_offsets = joined(attributes)


def joined(texts: list[str]) -> tuple[bytes, bytes]:
    encoded = [each.encode() for each in texts]
    offsets = array("I", [0])
    for each in encoded:
        offsets.append(offsets[-1] + len(each))
    return b"".join(encoded), offsets.tobytes()


class _Cluster(cluster_service_pb2_grpc.ClusterServiceServicer):
    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster

    def DescribeCluster(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        response = cluster_service_pb2.DescribeClusterResponse(
            cluster="fake", map_version=3, scheme="qt-tree", leaf_count=2, slot_count=16
        )
        with self.cluster.lock:
            self.cluster.describes += 1
            if self.cluster.merger_comes is not None:
                described, address = self.cluster.merger_comes
                if self.cluster.describes == described:
                    self.cluster.mergers.append(address)
            for i, address in enumerate(self.cluster.mergers):
                response.members.add(id=f"merger-{i}", service="merger", address=address)
        response.members.add(id="router-0", service="router", loads={"objects_per_s": 2.0})
        response.ownerships.add(topic="slots", partition=4, member="evaluator-0", epoch=9)
        if request.leaves:
            response.leaves.add(id=1, slot=4, east=180, north=90, objects=5)
        return response

    def AwaitProcessed(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        assert request.position_token
        with self.cluster.lock:
            cursors = [str(len(self.cluster.matches))]
        return cluster_service_pb2.AwaitProcessedResponse(cursors=cursors)
