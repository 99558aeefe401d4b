"""TLS, tokens and tenants on a whole cluster: access, refusals, renewals."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub
from sirocco_client import (
    AlreadyExists,
    AsyncClient,
    Client,
    NotFound,
    PermissionDenied,
    PublishFailed,
    PublishFlow,
    RangeQuery,
    ResourceExhausted,
    Retry,
    SiroccoError,
    Tls,
    Unauthenticated,
    Unavailable,
)

from sirocco.cli.__main__ import main
from sirocco.internal_api.v1.load_service_pb2 import TellLoadsRequest
from sirocco.internal_api.v1.load_service_pb2_grpc import LoadServiceStub
from sirocco.internal_api.v1.owner_service_pb2 import ReadQueriesRequest
from sirocco.internal_api.v1.owner_service_pb2_grpc import OwnerServiceStub
from sirocco.runtime.grpc.security import SecuritySettings, secured
from sirocco.runtime.grpc.tls import TlsFiles
from sirocco.runtime.process.membership import directory
from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from tests.collisions import FOUND
from tests.support.certificates import Authority
from tests.support.search_ways import STREAMS, take

SETTINGS = ClusterSettings(slots=4, intake_partitions=2, registry_partitions=2, reflection=True)
ONCE = Retry(attempts=1)
ALL = ("publish", "query", "subscribe", "search")


@dataclass
class Secured:
    """A running cluster, and the credentials for it."""

    cluster: EmbeddedCluster
    authority: Authority
    directory: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def tokens(self) -> Path:
        return self.directory / "tokens"

    def token(self, name: str, *scopes: str, tenant: str = "") -> str:
        """Returns a new token that the servers accept."""
        secret = self.directory / f"{name}.token"
        arguments = ["token", str(secret), *(f"--scope={scope}" for scope in scopes)]
        assert main([*arguments, *([f"--tenant={tenant}"] if tenant else [])]) == 0
        line = self.capsys.readouterr().out
        assert secret.read_text().strip() not in line
        assert secret.stat().st_mode & 0o077 == 0
        self.tokens.write_text(self.tokens.read_text() + line)
        return secret.read_text().strip()

    def client(self, token: str | None, **options: object) -> Client:
        options = {"retry": ONCE, "timeout_s": 20.0} | options
        tls = Tls(self.authority.certificate.read_bytes(), server_name="sirocco")
        return Client(self.cluster.router_address, **{"tls": tls, "token": token} | options)  # type: ignore[arg-type]


@pytest.fixture
def secure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Secured]:
    authority = Authority(tmp_path / "authority")
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    authority.issue(certificate, key, "sirocco", "localhost")
    tokens = tmp_path / "tokens"
    tokens.write_text("# who may do what\n")
    files = TlsFiles(str(certificate), str(key), str(authority.certificate), "sirocco")
    security = secured(SecuritySettings(files, str(tokens)))
    with EmbeddedCluster(SETTINGS, routers=2, security=security) as cluster:
        yield Secured(cluster, authority, tmp_path, capsys)


def known(client: Client) -> Client:
    """Returns the client once its token is known: servers read the file once a second."""
    eventually(client.describe, Unauthenticated)
    return client


def eventually(call: Callable[[], object], *errors: type[SiroccoError]) -> None:
    """Returns when a call succeeds that fails with one of some errors before."""
    end_s = time.monotonic() + 120.0
    while True:
        try:
            call()
            return
        except errors:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.05)


def finally_refused(call: Callable[[], object], error: type[SiroccoError]) -> None:
    """Returns when a call fails that succeeds at first."""
    end_s = time.monotonic() + 120.0
    while time.monotonic() < end_s:
        try:
            call()
        except error:
            return
        time.sleep(0.05)
    raise AssertionError(f"no {error.__name__}")


def near(name: str, subscriber: str = "alerts") -> RangeQuery:
    return RangeQuery(id=name, subscriber=subscriber, text="fire")


FIRE = {"id": 1, "lon": 1.0, "lat": 2.0, "text": "fire"}


def test_probes_need_no_token_and_those_who_look_at_the_contract_do(secure: Secured) -> None:
    credentials = grpc.ssl_channel_credentials(secure.authority.certificate.read_bytes())
    named = (("grpc.ssl_target_name_override", "sirocco"),)
    with grpc.secure_channel(secure.cluster.router_address, credentials, named) as channel:
        answer = HealthStub(channel).Check(HealthCheckRequest(), timeout=20)
        assert answer.status == HealthCheckResponse.SERVING
        asked = iter((ServerReflectionRequest(list_services=""),))
        with pytest.raises(grpc.RpcError) as caught:
            list(ServerReflectionStub(channel).ServerReflectionInfo(asked, timeout=20))
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_tenants_see_their_own_alone(secure: Secured) -> None:
    acme = known(secure.client(secure.token("acme", *ALL, tenant="acme")))
    other = known(secure.client(secure.token("other", *ALL, tenant="other")))
    operator = known(secure.client(secure.token("operator", *ALL, "admin")))
    with acme, other, operator:
        with acme.subscribe("alerts") as received, other.subscribe("alerts") as others:
            for number in range(4):
                acme.register(near(f"q{number}"))
            other.register(near("theirs"))
            with acme.publisher() as publisher:
                publisher.publish(FIRE)
                token = publisher.flush().position_token
            acme.await_processed(token)
            found = {query for query, _ in received.next_batch().pairs()}  # type: ignore[union-attr]
            assert found == {"q0", "q1", "q2", "q3"}
            assert {q for q, _ in others.next_batch().pairs()} == {"theirs"}  # type: ignore[union-attr]
        assert {each.query.id for each in acme.list()} == {"q0", "q1", "q2", "q3"}
        assert acme.get("q0").query.subscriber == "alerts"
        assert {each.query.id for each in other.list()} == {"theirs"}
        for name in ("q0", "acme:q0"):
            with pytest.raises(NotFound):
                other.get(name)
            with pytest.raises(NotFound):
                other.unregister(name)
        # The same name in another tenant is another query.
        other.register(near("q0"))
        other.unregister("q0")
        assert acme.get("q0").query.id == "q0"
        assert {each.query.id for each in operator.list()} == {
            *(f"acme:q{number}" for number in range(4)),
            "other:theirs",
        }
        assert not acme.describe().ownerships
        assert operator.describe().ownerships


def test_an_id_made_for_the_hash_of_another_tenants_reaches_nothing(secure: Secured) -> None:
    victim, own = "orders", FOUND["acme:orders"].removeprefix("evil:")
    acme = known(secure.client(secure.token("acme", *ALL, tenant="acme")))
    evil = known(secure.client(secure.token("evil", *ALL, tenant="evil")))
    with acme, evil:
        acme.register(near(victim))
        with pytest.raises(AlreadyExists, match="choose another id") as refused:
            evil.register(near(own))
        assert victim not in str(refused.value)
        for call in (evil.get, evil.unregister, lambda name: evil.update(near(name))):
            with pytest.raises(NotFound):
                call(own)
        assert list(evil.list()) == []
        assert acme.get(victim).query.subscriber == "alerts"
        acme.unregister(victim)
        # The first one is removed: no part of it is left.
        evil.register(near(own))
        assert [each.query.id for each in evil.list()] == [own]
        assert list(acme.list()) == []


def test_what_a_token_does_not_open_is_refused(secure: Secured) -> None:
    reader = known(secure.client(secure.token("reader", "subscribe", tenant="acme")))
    with reader:
        with pytest.raises(PermissionDenied):
            reader.register(near("q"))
        publisher = reader.publisher()
        publisher.publish(FIRE)
        with pytest.raises(PublishFailed) as failure:
            publisher.close()
        assert failure.value.cause_code == PermissionDenied.code
        with pytest.raises(PermissionDenied):
            reader.balance()
    for wrong in (None, "guessed"):
        with secure.client(wrong) as stranger, pytest.raises(Unauthenticated):
            stranger.describe()


def test_a_token_that_is_taken_back_ends_what_it_opened(secure: Secured) -> None:
    operator = known(secure.client(secure.token("operator", *ALL)))
    before = secure.tokens.read_text()
    acme = known(secure.client(secure.token("acme", *ALL, tenant="acme")))
    with acme, acme.subscribe("alerts") as received:
        acme.register(near("q"))
        publisher = acme.publisher()
        publisher.publish(FIRE)
        publisher.flush()
        assert received.next_batch() is not None
        secure.tokens.write_text(before)

        def publish() -> None:
            publisher.publish(FIRE)
            publisher.flush()

        def receive() -> None:
            batch = received.next_batch()
            assert batch is not None
            assert 2 not in {object_id for _, object_id in batch.pairs()}

        finally_refused(publish, SiroccoError)
        finally_refused(acme.describe, Unauthenticated)
        with pytest.raises(SiroccoError):
            publisher.close()
        # Earlier messages may still arrive; new ones are no longer sent.
        with operator, operator.publisher() as later:
            later.publish(FIRE | {"id": 2})
            later.flush()
            finally_refused(receive, Unauthenticated)


def test_searches_on_a_kept_stream_follow_the_token(
    secure: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(STREAMS, monkeypatch)
    before = secure.tokens.read_text()
    question = RangeQuery(id="s", text="fire", mode="snapshot")
    with known(secure.client(secure.token("acme", "search", tenant="acme"))) as acme:
        acme.search(question)
        assert len(acme._searches._kept._streams) == 1
        grant = json.loads(secure.tokens.read_text().splitlines()[-1])
        grant["scopes"].append("query")
        secure.tokens.write_text(before + json.dumps(grant) + "\n")

        def register() -> None:
            # No search fails, though the stream ends when the token opens something else.
            acme.search(question)
            acme.register(near("q"))

        eventually(register, PermissionDenied)
        acme.search(question)
        secure.tokens.write_text(before)
        finally_refused(lambda: acme.search(question), Unauthenticated)


def test_no_client_publishes_in_the_name_of_another(
    secure: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both claim the same session, as a reader of notifications could.
    monkeypatch.setattr("sirocco_client.publishing.publisher.new_session", lambda: 7)
    acme = known(secure.client(secure.token("acme", *ALL, tenant="acme")))
    other = known(secure.client(secure.token("other", *ALL, tenant="other")))
    question = RangeQuery(id="s", text="fire", mode="snapshot")
    with acme, other:
        for client, numbers in ((other, range(10, 60)), (acme, range(3))):
            with client.publisher() as publisher:
                publisher.publish_many(FIRE | {"id": number} for number in numbers)
                position = publisher.flush().position_token
        found = acme.search(question, position_token=position)
        # If they were taken for repeats, those of acme would be missing.
        assert {each.id for each in found.objects} >= {0, 1, 2}


def test_damaged_tokens_change_nothing(secure: Secured) -> None:
    operator = known(secure.client(secure.token("operator", "admin")))
    good = secure.tokens.read_text()
    with operator:
        secure.tokens.write_text(good + "{}\n")
        time.sleep(1.5)
        operator.describe()
        secure.tokens.write_text(good)


def test_clients_without_tokens_are_refused(secure: Secured, tmp_path: Path) -> None:
    token = secure.token("operator", *ALL, "admin")
    others = Authority(tmp_path / "others")
    for tls in (Tls(others.certificate.read_bytes(), server_name="sirocco"), Tls()):
        with secure.client(token, tls=tls) as client, pytest.raises(Unavailable) as failure:
            client.describe()
        assert "certificate is refused, unable to get local issuer" in str(failure.value)
    root = Tls(secure.authority.certificate.read_bytes(), server_name="elsewhere")
    with secure.client(token, tls=root) as client, pytest.raises(Unavailable) as failure:
        client.describe()
    assert "certificate is of another name" in str(failure.value)
    with secure.client(token, tls=None) as plain, pytest.raises(Unavailable):
        plain.describe()


def test_what_is_for_services_alone_asks_for_their_certificate(
    secure: Secured, tmp_path: Path
) -> None:
    root = secure.authority.certificate.read_bytes()
    members = directory(secure.cluster.services[0].parts.store).values()
    routers = [each for each in members if each.service == "router"]
    evaluators = [each for each in members if each.service == "evaluator"]

    def ask(address: str, credentials: grpc.ChannelCredentials) -> grpc.StatusCode:
        options = (("grpc.ssl_target_name_override", "sirocco"),)
        with grpc.secure_channel(address, credentials, options) as channel:
            try:
                if address == evaluators[0].for_peers:
                    LoadServiceStub(channel).TellLoads(
                        TellLoadsRequest(slots_only=True), timeout=120.0
                    )
                else:
                    request = ReadQueriesRequest(partition=0)
                    OwnerServiceStub(channel).ReadQueries(request, timeout=120.0)
            except grpc.RpcError as error:
                return error.code()  # type: ignore[no-any-return, attr-defined]
        return grpc.StatusCode.OK

    anybody = grpc.ssl_channel_credentials(root)
    # The clients' port has no such service; the other one needs a certificate.
    assert ask(routers[0].address, anybody) is grpc.StatusCode.UNIMPLEMENTED
    assert ask(routers[0].for_peers, anybody) is grpc.StatusCode.UNAVAILABLE
    assert ask(evaluators[0].for_peers, anybody) is grpc.StatusCode.UNAVAILABLE
    # A certificate of the same authority for another purpose.
    own = {}
    for name in ("somebody", "sirocco"):
        certificate, key = tmp_path / f"{name}.crt", tmp_path / f"{name}.key"
        secure.authority.issue(certificate, key, name)
        own[name] = grpc.ssl_channel_credentials(root, key.read_bytes(), certificate.read_bytes())
    for member in (routers[0], evaluators[0]):
        answer = ask(member.for_peers, own["somebody"])
        assert answer is grpc.StatusCode.PERMISSION_DENIED
    # One of the two owns the partition.
    answers = {ask(each.for_peers, own["sirocco"]) for each in routers}
    assert answers == {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}
    assert ask(evaluators[0].for_peers, own["sirocco"]) is grpc.StatusCode.OK


def test_a_renewed_certificate_is_taken_without_a_restart(secure: Secured) -> None:
    token = secure.token("operator", *ALL, "admin")
    here = secure.directory
    known(secure.client(token)).close()
    # Of another authority, so that the old certificate would be refused.
    secure.authority = Authority(here / "next")
    (here / "authority" / "ca.crt").write_bytes(secure.authority.certificate.read_bytes())
    secure.authority.issue(here / "tls.crt", here / "tls.key", "sirocco")
    with secure.client(token) as client:
        eventually(client.describe, Unavailable)
        # Through the other router, the mergers and the evaluators: all connect anew.
        for number in range(4):
            client.register(near(f"q{number}"))
        with client.publisher() as publisher:
            publisher.publish(FIRE)
            position = publisher.flush().position_token
        found = client.search(
            RangeQuery(id="s", text="fire", mode="snapshot"), position_token=position
        )
        assert len(list(found.objects)) == 1


def test_the_commands_use_tls_and_send_tokens(
    secure: Secured, capsys: pytest.CaptureFixture[str]
) -> None:
    token = secure.token("operator", *ALL, "admin")
    known(secure.client(token)).close()
    speak = ["--router", secure.cluster.router_address, "--server-name", "sirocco"]
    speak += ["--ca", str(secure.authority.certificate)]
    assert main(["cluster", *speak, "--json"]) != 0
    assert "bearer" in capsys.readouterr().err.lower()
    speak += ["--token-file", str(secure.directory / "operator.token")]
    assert main(["cluster", *speak, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["members"]


def test_a_tenant_has_limits(secure: Secured) -> None:
    limits = '{"tenant": "acme", "queries": 5, "objects_per_s": 200}\n'
    secure.tokens.write_text(secure.tokens.read_text() + limits)
    acme = known(secure.client(secure.token("acme", *ALL, tenant="acme")))
    with acme:
        for number in range(5):
            acme.register(near(f"q{number}"))
        with pytest.raises(ResourceExhausted) as refused:
            acme.register(near("q5"))
        assert refused.value.retry_after_ms
        # An update takes no more room, and a removal frees some.
        acme.register(near("q0"))
        bulk = acme.register_many(near(f"q{number}") for number in range(8))
        refusals = {each.id for each in bulk if isinstance(each.error, ResourceExhausted)}
        assert refusals == {"q5", "q6", "q7"}
        acme.unregister("q4")
        eventually(lambda: acme.register(near("q5")), ResourceExhausted)
        assert {each.query.id for each in acme.list()} == {"q0", "q1", "q2", "q3", "q5"}
        begin_s = time.monotonic()
        with acme.publisher(PublishFlow(batch_objects=50)) as publisher:
            for _ in range(600):
                publisher.publish(FIRE)
        # A second's worth at once, one batch beyond the limit, and the rest at the rate.
        assert time.monotonic() - begin_s > 1.5
    received = ""
    for router in secure.cluster.services[:2]:
        with urllib.request.urlopen(f"http://{router.http_address}/metrics") as page:
            received += page.read().decode()
    assert 'sirocco_router_tenant_objects_total{tenant="acme"}' in received
    assert 'sirocco_router_tenant_refusals_total{limit="queries",tenant="acme"}' in received


def test_the_check_of_the_chart_goes_through(secure: Secured) -> None:
    token = secure.token("test", "publish", "query", "subscribe", tenant="helm")
    known(secure.client(token)).close()
    environment = {
        "SIROCCO_CHECK_CA": str(secure.authority.certificate),
        "SIROCCO_CHECK_NAME": "sirocco",
        "SIROCCO_CHECK_BEARER": str(secure.directory / "test.token"),
    }
    check = Path(__file__).resolve().parents[2] / "charts" / "sirocco" / "files" / "check.py"
    done = subprocess.run(
        [sys.executable, str(check), secure.cluster.router_address, "60"],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "matched" in done.stdout


def test_mergers_are_checked_for_the_name_of_the_router(secure: Secured) -> None:
    token = secure.token("acme", *ALL, tenant="acme")
    known(secure.client(token)).close()
    # Mergers are given as addresses, which the certificate does not name.
    router = f"localhost:{secure.cluster.router_address.rpartition(':')[2]}"
    tls = Tls(secure.authority.certificate.read_bytes())
    question = RangeQuery(id="s", text="fire", mode="snapshot")
    with Client(router, tls=tls, token=token, retry=ONCE) as client:
        assert list(client.search(question).objects) == []

    async def asynchronous() -> int:
        async with AsyncClient(router, tls=tls, token=token, retry=ONCE) as client:
            return len(list((await client.search(question)).objects))

    assert asyncio.run(asynchronous()) == 0
    # No certificate is valid for its address.
    with secure.client(token, tls=tls) as client, pytest.raises(Unavailable):
        client.describe()
