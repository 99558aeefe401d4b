"""A definition after a void change is read back and republished, so that compaction keeps it."""

from __future__ import annotations

from sirocco.model.query import parse_query, query_handle
from sirocco.protocol.contract.messages import NO_REVISION, REGISTRY, Change
from sirocco.protocol.router.queries.registry_partition import Registry
from sirocco.runtime.loop.hops import HopWriter
from sirocco.services.embedded import EmbeddedCluster
from sirocco.services.router.definition_recovery import DefinitionRecovery
from sirocco.services.router.registry_definitions import StoredQueries
from sirocco.services.router.service import RouterService
from tests.support.plain_client import DEADLINE_S, PlainClient, query_message
from tests.support.waiting import eventually
from tests.unit.services.conftest import SETTINGS

NAME = "recalled"
HANDLE = query_handle(NAME)
PARTITION = HANDLE % SETTINGS.registry_partitions


def owner(cluster: EmbeddedCluster) -> RouterService:
    routers = [s for s in cluster.services if isinstance(s, RouterService)]
    (found,) = [each for each in routers if PARTITION in each.machine.registries]
    return found


def append_late(cluster: EmbeddedCluster) -> None:
    """Appends a pending change of a replaced router."""
    query = parse_query({"id": NAME, "kind": "range", "mode": "continuous", "text": "late"})
    producer = cluster.log.producer("zombie")
    change = Change(
        handle=HANDLE,
        query=query,
        subscriber="s-recalled",
        start_ms=5,
        expected_revision=-1,
        digest=1,
    )
    HopWriter(producer, lambda *_: None).append(REGISTRY, PARTITION, change, 0)
    producer.flush(DEADLINE_S)


def test_the_definition_in_force_is_republished_and_shown(
    cluster: EmbeddedCluster, plain: PlainClient
) -> None:
    query = query_message(NAME, "s-recalled", text="true", ttl="30000d")
    revision = plain.register(query, start_ms=70)
    service = owner(cluster)
    registry = service.machine.registries[PARTITION]
    append_late(cluster)
    eventually(lambda: registry.validation.voids > 0, "the void change is read")

    # The service's own thread does the same every few seconds.
    stored = StoredQueries(cluster.log, service.machine)
    DefinitionRecovery("test", service.machine, stored, service.worker).look()
    eventually(lambda: is_republished(registry, revision), "it is said again")

    again = stored.at(PARTITION, registry.place(HANDLE))
    assert again is not None
    assert (again.is_republished, again.expected_revision) == (True, revision)
    for router in (0, 1):
        shown = plain.get(NAME, router)
        assert (shown.query, shown.revision, shown.start_ms) == (query, revision, 70)
        (listed,) = plain.list(router, subscriber="s-recalled").registered_queries
        assert (listed.query, listed.revision) == (query, revision)
    assert plain.register(query) == revision
    plain.unregister(NAME)
    assert registry.place(HANDLE) == NO_REVISION


def is_republished(registry: Registry, revision: int) -> bool:
    return not registry.hidden and registry.place(HANDLE) > revision


def test_what_is_no_longer_there_is_not_found(cluster: EmbeddedCluster) -> None:
    service = owner(cluster)
    stored = StoredQueries(cluster.log, service.machine)
    _, high = cluster.log.bounds(REGISTRY, PARTITION)
    assert stored.at(PARTITION, high) is None
