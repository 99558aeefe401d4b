"""JWTs of an issuer with a real address: through the SDK and the gateway, until they end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import httpx
import pytest
from sirocco_client import Client, PermissionDenied, RangeQuery, Unauthenticated

from sirocco.runtime.access.jwt_claims import ClaimRules
from sirocco.runtime.grpc.security import JwtSettings, SecuritySettings, secured
from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from sirocco.services.gateway.server import Gateway
from sirocco.services.gateway.settings import GatewaySettings
from tests.support import jwts
from tests.support.http_answers import serving
from tests.support.http_streams import EventSource
from tests.support.jwts import jwks, key, public

SCOPES = "openid sirocco:publish sirocco:query sirocco:subscribe sirocco:search"
SETTINGS = ClusterSettings(slots=4, intake_partitions=2, registry_partitions=2)
FIRE = {"id": 1, "lon": 1.0, "lat": 2.0, "text": "fire"}


@dataclass
class World:
    """A cluster that takes the issuer's tokens, and a gateway."""

    cluster: EmbeddedCluster
    gateway: Gateway
    clients: list[Client] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://{self.gateway.address}"

    def client(self, token: str) -> Client:
        self.clients.append(Client(self.cluster.router_address, token=token, timeout_s=60.0))
        return self.clients[-1]


@pytest.fixture
def world() -> Iterator[World]:
    keys = jwks(public(key("ES256")))
    with serving(lambda call: call.send(keys)) as (url, _):
        # No skew: a token ends at its end.
        rules: ClaimRules = replace(jwts.RULES, skew_ms=0)
        jwt = JwtSettings(rules=rules, keys=f"{url}/keys")
        security = secured(SecuritySettings(jwt=jwt))
        with EmbeddedCluster(SETTINGS, security=security) as cluster:
            gateway = Gateway(GatewaySettings(routers=cluster.router_address))
            gateway.start()
            made = World(cluster, gateway)
            yield made
            for client in made.clients:
                client.close()
            gateway.stop()


def token(valid_s: float = 3_600.0, tenant: str = "acme", scope: str = SCOPES) -> str:
    return jwts.token(exp=time.time() + valid_s, tenant=tenant, scope=scope)


def test_a_tenant_of_claims_publishes_asks_and_is_notified(world: World) -> None:
    acme, other = world.client(token()), world.client(token(tenant="other"))
    with acme.subscribe("alerts") as received:
        acme.register(RangeQuery(id="q", subscriber="alerts", text="fire"))
        with acme.publisher() as publisher:
            publisher.publish(FIRE)
        assert {query for query, _ in received.next_batch().pairs()} == {"q"}  # type: ignore[union-attr]
    assert not list(other.list())
    operator = world.client(token(scope="sirocco:operator sirocco:query"))
    assert {each.query.id for each in operator.list()} == {"acme:q"}
    with pytest.raises(PermissionDenied):
        world.client(token(scope="sirocco:publish")).register(RangeQuery(id="q2", text="fire"))


def test_a_jwt_is_handed_on_by_the_gateway(world: World) -> None:
    path, query = f"{world.url}/v1/queries/mine?subscriber=tom", {"kind": "range", "text": "fire"}
    codes = [
        httpx.put(path, json=query, headers={"authorization": f"Bearer {each}"}, timeout=60.0)
        for each in (token(), token(-1.0), jwts.token(made=key("ES256", "own")), "a.b.c")
    ]
    assert [each.status_code for each in codes] == [201, 401, 401, 401]
    stream = EventSource(world.url, "tom", headers={"authorization": f"Bearer {token()}"})
    with stream.reading(1), world.client(token()).publisher() as publisher:
        publisher.publish(FIRE)
    assert stream.received[0]["query"] == "mine"


def test_a_subscription_ends_with_its_token(world: World) -> None:
    client = world.client(token(5.0))
    with (
        pytest.raises(Unauthenticated, match="token ann has expired"),
        client.subscribe("alerts") as received,
    ):
        # Nothing ever comes: the stream ends by itself.
        received.next_batch()
