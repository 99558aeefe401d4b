"""The chart with TLS and tokens on a real cluster, with external Kafka, Redis and archive.

Certificates and tokens are created and passed as docs/guides/security.md describes. The servers and
the archive do not belong to the release, so that it can be uninstalled and installed again over the
state that it left.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.cluster import (
    CHART,
    CLIENT_SECRETS,
    NAMESPACE,
    RELEASE,
    SERVICES,
    Client,
    ClientPod,
    apply_secret,
    client_command,
    deployment,
    helm,
    install,
    kubectl,
    namespace,
    needs_cluster,
    pods,
    run,
    settings,
)
from tests.support.certificates import Authority

SEED = 20261122
pytestmark = needs_cluster

# The release of which only the servers are used.
OTHERS = "others"
NAMES = ("sirocco", f"{RELEASE}-router", f"{RELEASE}-router.{NAMESPACE}.svc")
SECURED = (
    "--set=development.enabled=false",
    f"--set-string=kafka.bootstrapServers={OTHERS}-sirocco-kafka:9092",
    f"--set-string=redis.url=redis://{OTHERS}-sirocco-redis:6379/0",
    f"--set-string=archive.existingClaim={OTHERS}-sirocco-archive",
    "--set-string=archive.url=/archive",
    "--set-string=security.tls.existingSecret.name=sirocco-tls",
    "--set-string=security.tokens.existingSecret.name=sirocco-tokens",
    "--set-string=security.client.existingSecret.name=sirocco-client",
    "--set=coordinator.replicas=2",
)
CONNECTION = (f"--ca={CLIENT_SECRETS}/ca.crt", f"--token-file={CLIENT_SECRETS}/acme")

# Kubelets read secrets once a minute. Services read their files with each new connection.
RENEWAL_S = 300.0
MOUNTED = "/etc/sirocco/tls/tls.crt"
SHOWN = f"""
import ssl
print(ssl.get_server_certificate(("{RELEASE}-router", 7070)), end="")
"""


class Keys:
    """The authority, the services' certificate, and tokens.

    Args:
        directory: Of their files.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.authority = Authority(directory / "authority")
        self._lines = ""
        self.tokens: dict[str, bytes] = {}
        self._grant("acme", "publish", "query", "subscribe", "search")
        self._grant("reader", "subscribe")
        self._grant("test", "publish", "query", "subscribe", "admin", tenant="")

    def apply(self) -> None:
        """Creates all secrets."""
        self.renew()
        apply_secret("sirocco-tokens", {"tokens": self._lines.encode()})
        apply_secret("sirocco-client", {"token": self.tokens["test"]})
        authority = self.authority.certificate.read_bytes()
        apply_secret("acme-client", {**self.tokens, "ca.crt": authority})

    def renew(self) -> None:
        """Replaces the certificate in the services' secret."""
        certificate, key = self._directory / "tls.crt", self._directory / "tls.key"
        self.authority.issue(certificate, key, *NAMES)
        files = (certificate, key, self.authority.certificate)
        apply_secret("sirocco-tls", {file.name: file.read_bytes() for file in files})

    def certificate(self) -> bytes:
        """Returns the services' newest certificate."""
        return (self._directory / "tls.crt").read_bytes()

    def _grant(self, name: str, *scopes: str, tenant: str = "acme") -> None:
        file = self._directory / f"{name}.token"
        options = [
            *(f"--scope={scope}" for scope in scopes),
            *([f"--tenant={tenant}"] * bool(tenant)),
        ]
        command = [sys.executable, "-m", "sirocco.cli", "token", str(file), *options]
        self._lines += subprocess.run(command, capture_output=True, text=True, check=True).stdout
        self.tokens[name] = file.read_bytes().strip()


def start_others() -> None:
    """Starts Kafka, Redis and a claim from the chart's manifests, outside the release."""
    shown = [
        f"--show-only=templates/development-{one}.yaml" for one in ("kafka", "redis", "archive")
    ]
    # By default helm assumes an old version here.
    shown.append("--kube-version=v1.27.0")
    manifests = run("helm", "template", OTHERS, CHART, *settings(), *shown)
    kubectl("apply", "--filename=-", given=manifests.encode())
    kubectl("rollout", "status", f"statefulset/{OTHERS}-sirocco-kafka", "--timeout=900s")
    kubectl("rollout", "status", f"deployment/{OTHERS}-sirocco-redis", "--timeout=900s")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keys]:
    with namespace():
        made = Keys(tmp_path_factory.mktemp("keys"))
        made.apply()
        start_others()
        install(*SECURED)
        with ClientPod("acme-client"):
            yield made


def logs() -> dict[str, str]:
    """Returns the output of each pod of the services."""
    names = [one["metadata"]["name"] for service in SERVICES for one in pods(service)]
    return {name: kubectl("logs", name) for name in names}


def helm_test() -> str:
    return helm("test", RELEASE, "--logs", "--timeout=15m")


@pytest.mark.usefixtures("keys")
def test_helm_test_passes_with_the_authority_and_a_token() -> None:
    assert "matched after" in helm_test()


def test_matching_by_tls_and_token_is_exact_while_the_certificate_changes(keys: Keys) -> None:
    with Client("secured", f"{SEED}-secured", *CONNECTION) as client:
        client.progress()
        keys.renew()
        begun_s = time.monotonic()
        waiting = [one["metadata"]["name"] for service in SERVICES for one in pods(service)]
        while waiting:
            assert time.monotonic() < begun_s + RENEWAL_S, f"{waiting} have no new certificate"
            if kubectl("exec", waiting[0], "--", "cat", MOUNTED).encode() == keys.certificate():
                del waiting[0]
            else:
                time.sleep(2.0)
        print(f"the new certificate is everywhere after {time.monotonic() - begun_s:.0f} s")
        shown = kubectl("exec", ClientPod.NAME, "--", "python", "-c", SHOWN)
        assert shown.encode() == keys.certificate()
        # New pods know only the new certificate, and connect to older ones.
        for service in ("evaluator", "merger"):
            victim = pods(service)[0]["metadata"]["name"]
            slowest_s = client.lose(service, victim)
            print(f"{victim} deleted: the slowest matches came after {slowest_s:.1f} s")
        print(f"{client.finish()} objects, all as the oracle says")


@pytest.mark.usefixtures("keys")
def test_clients_without_certificate_or_token_receive_a_typed_error() -> None:
    evaluator = pods("evaluator")[0]["status"]["podIP"]
    reader = f"--reader-token-file={CLIENT_SECRETS}/reader"
    options = (*CONNECTION, reader, f"--evaluator={evaluator}:7070")
    output = json.loads(kubectl(*client_command("strangers", *options)))
    print(output)
    # Where network policies are enforced, not even the handshake is reached.
    assert output.pop("a client as a service") in {"UNAVAILABLE", "unreachable"}
    assert output == {
        "the owner of the token": "",
        "in plain text": "Unavailable",
        "who does not know the authority": "Unavailable",
        "without a token": "Unauthenticated",
        "with a guessed token": "Unauthenticated",
        "a reader registers": "PermissionDenied",
        "a reader publishes": "PublishFailed, PERMISSION_DENIED",
    }


def test_an_operator_asks_from_within_with_a_token_that_stays_outside(keys: Keys) -> None:
    # As docs/guides/operations.md describes: the token is passed by stdin, neither as an argument
    # nor as a file.
    files = ("--ca=/etc/sirocco/tls/ca.crt", "--token-file=/dev/stdin")
    command = ("sirocco", "cluster", "--json", f"--router={RELEASE}-router:7070", *files)
    inside = ("exec", "-i", deployment("router"), "--", *command)
    output = json.loads(kubectl(*inside, given=keys.tokens["test"]))
    assert {one["service"] for one in output["members"]} == set(SERVICES)
    assert kubectl(*inside, check=False, given=b"guessed") == ""


def test_a_release_that_was_uninstalled_and_installed_again_continues(keys: Keys) -> None:
    known = kubectl(*client_command("returning", "before", *CONNECTION))
    helm("uninstall", RELEASE, "--wait", "--timeout=10m")
    assert not any(pods(service) for service in SERVICES)
    install(*SECURED)
    found = kubectl(*client_command("returning", "after", *CONNECTION), given=known.encode())
    print(f"queries, objects and matches after it: {found}")
    assert "matched after" in helm_test()


def test_no_secret_stands_in_a_log_or_a_manifest(keys: Keys) -> None:
    output = {**logs(), "manifests": kubectl("get", "pods,configmaps", "--output=yaml")}
    assert '"listening"' in kubectl("logs", deployment("router"))
    for where, reported in output.items():
        assert not [name for name, token in keys.tokens.items() if token.decode() in reported], (
            where
        )
        assert "PRIVATE KEY" not in reported, where
