"""A whole cluster as tools of the gRPC ecosystem see it: a plain channel, and no code of ours."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse, HealthListRequest
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from grpc_status import rpc_status
from sirocco_api.v1.query_pb2 import QUERY_MODE_CONTINUOUS
from sirocco_api.v1.query_service_pb2 import RegisterQueryRequest
from sirocco_api.v1.query_service_pb2_grpc import QueryServiceStub

from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster

SETTINGS = ClusterSettings(
    slots=2, intake_partitions=1, registry_partitions=1, partials_partitions=1, reflection=True
)
HEALTH = "grpc.health.v1.Health"
REFLECTION = "grpc.reflection.v1alpha.ServerReflection"
ROUTER = {f"sirocco.v1.{name}Service" for name in ("Balance", "Cluster", "Map", "Publish", "Query")}
MERGER = {"sirocco.v1.ReceiveService", "sirocco.v1.SearchService"}
TIMEOUT_S = 40.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(SETTINGS) as running:
        yield running


def channel_to(cluster: EmbeddedCluster, name: str) -> grpc.Channel:
    (service,) = [each for each in cluster.services if each.name == name]
    return grpc.insecure_channel(service.address)


@pytest.mark.parametrize(("name", "services"), [("router", ROUTER), ("merger", MERGER)])
def test_health_and_reflection_name_the_services_for_clients(
    cluster: EmbeddedCluster, name: str, services: set[str]
) -> None:
    with channel_to(cluster, name) as channel:
        health = HealthStub(channel)
        for service in ("", *services):
            answer = health.Check(HealthCheckRequest(service=service), timeout=TIMEOUT_S)
            assert answer.status == HealthCheckResponse.SERVING
        listed = health.List(HealthListRequest(), timeout=TIMEOUT_S).statuses
        assert set(listed) == {"", *services}
        # Without tokens, calls between services come to the same port; they are not shown.
        shown = ProtoReflectionDescriptorDatabase(channel)
        assert set(shown.get_services()) == {*services, HEALTH, REFLECTION}
        file = shown.FindFileContainingSymbol(min(services))
        assert file.package == "sirocco.v1"
        with pytest.raises(KeyError):
            shown.FindFileContainingSymbol("sirocco.v1.OwnerService")


@pytest.mark.parametrize("name", ["evaluator", "coordinator"])
def test_services_without_clients_have_neither(cluster: EmbeddedCluster, name: str) -> None:
    with channel_to(cluster, name) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            HealthStub(channel).Check(HealthCheckRequest(), timeout=TIMEOUT_S)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_bad_registration_names_its_field_in_details_that_every_client_reads(
    cluster: EmbeddedCluster,
) -> None:
    request = RegisterQueryRequest()
    request.query.id = "near"
    request.query.subscriber = "alerts"
    request.query.mode = QUERY_MODE_CONTINUOUS
    request.query.range.region.circle.radius_m = -1
    with channel_to(cluster, "router") as channel:
        with pytest.raises(grpc.RpcError) as caught:
            QueryServiceStub(channel).RegisterQuery(request, timeout=TIMEOUT_S)
        status = rpc_status.from_call(caught.value)
    assert status is not None
    info, bad = ErrorInfo(), BadRequest()
    assert status.details[0].Unpack(info)
    assert status.details[1].Unpack(bad)
    assert (info.reason, info.domain) == ("INVALID_ARGUMENT", "sirocco.v1")
    (violation,) = bad.field_violations
    assert violation.field == "region.circle.radius_m"
    assert violation.description in caught.value.details()


def test_who_watches_a_process_that_stops_is_told() -> None:
    with EmbeddedCluster(SETTINGS) as running, channel_to(running, "merger") as channel:
        states = HealthStub(channel).Watch(HealthCheckRequest(), timeout=TIMEOUT_S)
        assert next(states).status == HealthCheckResponse.SERVING
        (merger,) = [each for each in running.services if each.name == "merger"]
        merger.stop()
        assert next(states).status == HealthCheckResponse.NOT_SERVING
        assert not list(states)


def test_reflection_is_off_unless_it_is_asked_for() -> None:
    assert not ClusterSettings().reflection
