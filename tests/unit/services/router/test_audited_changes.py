"""Changes of queries and maps at a running cluster, in the audit log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from sirocco_api.v1 import map_service_pb2, query_service_pb2
from sirocco_api.v1.map_service_pb2_grpc import MapServiceStub

from sirocco.services.embedded import EmbeddedCluster
from sirocco.telemetry.audit import AUDIT
from tests.support.plain_client import DEADLINE_S, PlainClient, query_message, refused

REGION = {"rect": {"west": 0.0, "south": 0.0, "east": 2.0, "north": 2.0}}


class Lines:
    """What the audit log says of the calls of a test."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._records = caplog.records

    def take(self) -> list[tuple[str, list[str], str]]:
        """Returns action, ids and outcome of each line since the last time."""
        fields: list[Any] = [vars(each)["fields"] for each in self._records]
        self._records.clear()
        assert all(each["peer"].startswith("ipv4:127.0.0.1:") for each in fields)
        return [(each["action"], each["ids"], each["outcome"]) for each in fields]


@pytest.fixture
def audit() -> Iterator[None]:
    AUDIT.set_level("changes")
    yield
    AUDIT.set_level("off")


@pytest.mark.usefixtures("audit")
def test_each_change_of_a_query_is_written(
    plain: PlainClient, caplog: pytest.LogCaptureFixture
) -> None:
    lines = Lines(caplog)
    query = query_message("audited", "s", region=REGION, text="coffee")
    plain.register(query)
    query.range.text = "tea"
    plain.update(query)
    query.range.text = "("
    refused(lambda: plain.update(query))
    plain.unregister("audited")
    refused(lambda: plain.unregister("audited"))
    assert lines.take() == [
        ("register_query", ["audited"], "ok"),
        ("update_query", ["audited"], "ok"),
        ("update_query", ["audited"], "invalid_argument"),
        ("unregister_query", ["audited"], "ok"),
        ("unregister_query", ["audited"], "not_found"),
    ]


@pytest.mark.usefixtures("audit")
def test_the_rows_of_bulk_changes_are_written_by_their_outcome(
    plain: PlainClient, caplog: pytest.LogCaptureFixture
) -> None:
    lines, stub = Lines(caplog), plain.queries[0]
    texts = {"bulk1": "coffee", "bulk2": "(", "bulk3": "tea"}
    queries = [query_message(name, "s", region=REGION, text="x") for name in texts]
    for query, text in zip(queries, texts.values(), strict=True):
        query.range.text = text
    request = query_service_pb2.RegisterQueriesRequest(queries=queries)
    list(stub.RegisterQueries(iter([request]), timeout=DEADLINE_S))
    assert sorted(lines.take()) == [
        ("register_query", ["bulk1", "bulk3"], "ok"),
        ("register_query", ["bulk2"], "invalid_argument"),
    ]
    removal = query_service_pb2.UnregisterQueriesRequest(ids=list(texts))
    list(stub.UnregisterQueries(iter([removal]), timeout=DEADLINE_S))
    assert sorted(lines.take()) == [
        ("unregister_query", ["bulk1", "bulk3"], "ok"),
        ("unregister_query", ["bulk2"], "not_found"),
    ]


@pytest.mark.usefixtures("audit")
def test_a_proposed_map_is_written(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    lines = Lines(caplog)
    with grpc.insecure_channel(cluster.router_address) as channel:
        request = map_service_pb2.ProposeMapRequest(partition_map=b"no map")
        code, _ = refused(lambda: MapServiceStub(channel).ProposeMap(request, timeout=DEADLINE_S))
    assert code == "INVALID_ARGUMENT"
    assert lines.take() == [("propose_map", ["map of 6 bytes"], "invalid_argument")]
