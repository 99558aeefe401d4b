"""The chart: Helm's checks of it, and the content of its manifests."""

from __future__ import annotations

import ast
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from sirocco.runtime.settings import from_environment
from sirocco.services.gateway.settings import GatewayLimits
from sirocco.services.gateway.settings import from_environment as read_gateway
from tests.charts.rendering import (
    CASES,
    CHART,
    CONNECTED_VALUES,
    CONNECTOR,
    FULL,
    GATEWAY,
    KUBERNETES,
    MINIMAL,
    OBSERVED,
    ROOT,
    SECURED,
    SERVICES,
    Manifest,
    by_service,
    containers_of,
    environment_of,
    every_case,
    helm,
    needs_helm,
    of_kind,
    pods_of,
    render,
    services_in,
    template,
)

pytestmark = needs_helm

# The variables of every process; the services' settings know these names.
ENVIRONMENT = frozenset(
    f"SIROCCO_{name}"
    for name in (
        *("CLUSTER", "KAFKA", "REDIS", "ARCHIVE", "GRPC_PORT", "HTTP_PORT", "HOST", "ARRIVAL"),
        *("ARRIVAL_SKEW_MAX", "NAME"),
        *("SLOTS", "LEAVES", "INTAKE_PARTITIONS", "REGISTRY_PARTITIONS", "PARTIALS_PARTITIONS"),
        *("RETAINED_BYTES", "RETENTION", "ARCHIVE_RETENTION", "STORE_BYTES", "STEP_BYTES"),
        *("SCHEME", "LOG_LEVEL", "AUDIT", "REFLECTION", "KERNEL_CACHE", "KAFKA_SECURITY"),
        *("BALANCE", "BALANCE_INTERVAL"),
        "KAFKA_COMPRESSION",
        *("STREAMS", "SEARCHES", "SEARCH_TIMEOUT_MAX", "UNREAD_TIMEOUT"),
        *(
            "CALLS",
            "TENANT_CALLS",
            "TENANT_STEPS",
            "TENANT_CHANGE_BYTES",
            "MESSAGE_MEMORY",
            "TENANT_MESSAGE_MEMORY",
            "REFLECTION",
        ),
        *("BALANCE_COOLDOWN", "BALANCE_OBJECTS", "BALANCE_THRESHOLD", "STORE"),
    )
)
# And those only of processes that must identify themselves.
SECURITY = frozenset(
    f"SIROCCO_{name}"
    for name in (
        *("KAFKA_SASL_MECHANISM", "KAFKA_SASL_USERNAME", "KAFKA_SASL_PASSWORD"),
        *("KAFKA_CA", "KAFKA_CERTIFICATE", "KAFKA_KEY", "REDIS_CA"),
        *("TLS_CERTIFICATE", "TLS_KEY", "TLS_CA", "TLS_NAME", "PEER_PORT"),
    )
)
# Likewise, where traces are exported.
TRACES = frozenset(("SIROCCO_TRACES", "SIROCCO_TRACE_RATIO", "SIROCCO_TRACE_CALLS"))
# Likewise, of the services that clients call.
CLIENTS = frozenset(
    f"SIROCCO_{name}"
    for name in (
        *("TOKENS", "JWT_ISSUER", "JWT_AUDIENCE", "JWT_KEYS", "JWT_KEYS_CA", "JWT_KEYS_INTERVAL"),
        *("JWT_ALGORITHMS", "JWT_CLOCK_SKEW", "JWT_TENANT_CLAIM", "JWT_SCOPE_CLAIM"),
        "JWT_SCOPE_PREFIX",
    )
)


OF_THE_GATEWAY = frozenset(
    f"SIROCCO_{name}"
    for name in (
        *("ROUTER", "GATEWAY_PORT", "GATEWAY_ORIGINS", "GATEWAY_CONNECTIONS", "GATEWAY_BODY"),
        *("GATEWAY_MEMORY", "GATEWAY_TENANT_MEMORY", "GATEWAY_STREAMS", "GATEWAY_TENANT_STREAMS"),
    )
)
WITH_GATEWAY = (FULL, OBSERVED, SECURED)
# See `test_a_connector_reads_its_configuration`.
OF_A_CONNECTOR = frozenset({"SIROCCO_CONNECTOR_CONFIG"})


def test_there_is_a_case_for_each_way_of_use() -> None:
    assert {path.name for path in CASES} >= {
        "minimal-values.yaml",
        "small-values.yaml",
        "full-values.yaml",
        "secured-values.yaml",
        "development-values.yaml",
        "observed-values.yaml",
        "connected-values.yaml",
    }


@every_case
def test_lint(values: Path) -> None:
    done = helm("lint", "--strict", CHART, "-f", values)
    assert done.returncode == 0, done.stdout + done.stderr


@every_case
def test_every_service_is_deployed(values: Path) -> None:
    manifests = render(values)
    services = services_in(manifests)
    assert (GATEWAY in services) == (values in WITH_GATEWAY)
    assert (CONNECTOR in services) == (values == CONNECTED_VALUES)
    assert set(by_service(manifests, "Deployment")) == services
    assert set(by_service(manifests, "PodDisruptionBudget")) == services
    reached = {"router", "merger", ""} | ({GATEWAY, CONNECTOR} & services)
    assert set(by_service(manifests, "Service")) == reached
    names = [(one["kind"], one["metadata"]["name"]) for one in manifests]
    assert len(names) == len(set(names))
    for service, deployment in by_service(manifests, "Deployment").items():
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        assert container["command"] == ["python", "-m", f"sirocco.services.{service}"]


@every_case
def test_selectors_meet_the_pods_that_they_mean(values: Path) -> None:
    manifests = render(values)
    labels = {
        service: deployment["spec"]["template"]["metadata"]["labels"]
        for service, deployment in by_service(manifests, "Deployment").items()
    }
    labels["test"] = next(iter(of_kind(manifests, "Pod").values()))["metadata"]["labels"]

    def met(selector: Manifest) -> set[str]:
        return {who for who, own in labels.items() if selector.items() <= own.items()}

    for service, deployment in by_service(manifests, "Deployment").items():
        assert met(deployment["spec"]["selector"]["matchLabels"]) == {service}
        for spread in deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]:
            assert met(spread["labelSelector"]["matchLabels"]) == {service}
    for service, budget in by_service(manifests, "PodDisruptionBudget").items():
        assert met(budget["spec"]["selector"]["matchLabels"]) == {service}
    for service, found in by_service(manifests, "Service").items():
        assert met(found["spec"]["selector"]) == ({service} if service else services_in(manifests))
    headless = by_service(manifests, "Service")[""]
    assert headless["spec"]["clusterIP"] == "None"


@every_case
def test_services_lead_to_ports_that_exist(values: Path) -> None:
    manifests = render(values)
    for deployment in by_service(manifests, "Deployment").values():
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        for probe, path in (
            ("startupProbe", "/healthz"),
            ("livenessProbe", "/healthz"),
            ("readinessProbe", "/readyz"),
        ):
            assert container[probe]["httpGet"] == {"path": path, "port": "http"}
    for service in by_service(manifests, "Service").values():
        for port in service["spec"]["ports"]:
            assert port["targetPort"] in {"grpc", "http", "api"}


@every_case
def test_every_process_receives_all_its_settings(values: Path) -> None:
    manifests = render(values)
    for service, deployment in by_service(manifests, "Deployment").items():
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        environment = environment_of(manifests, container)
        if service in {GATEWAY, CONNECTOR}:
            continue
        expected = ENVIRONMENT | SECURITY if values == SECURED else ENVIRONMENT
        if values == OBSERVED:
            expected |= TRACES
        if values == SECURED and service in {"router", "merger"}:
            expected |= CLIENTS
        assert {name for name in environment if name.startswith("SIROCCO_")} == expected
        assert all(isinstance(value, str) and value for value in environment.values())
        assert container["command"][:2] == ["python", "-m"]
        [host] = [one for one in container["env"] if one["name"] == "SIROCCO_HOST"]
        assert host["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"
        [name] = [one for one in container["env"] if one["name"] == "SIROCCO_NAME"]
        assert name["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
        variables = [variable["name"] for variable in container["env"]]
        assert len(variables) == len(set(variables))


@every_case
def test_the_services_accept_their_settings(values: Path) -> None:
    given = yaml.safe_load((CHART / "values.yaml").read_text())["cluster"]
    given |= yaml.safe_load(values.read_text()).get("cluster", {})
    manifests = render(values)
    for service, deployment in by_service(manifests, "Deployment").items():
        if service in {GATEWAY, CONNECTOR}:
            continue
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        environment = environment_of(manifests, container)
        if environment["SIROCCO_REDIS"].startswith("<"):
            environment["SIROCCO_REDIS"] = "rediss://:password@redis:6380/0"
        settings = from_environment(environment)
        assert settings.cluster.cluster == given["name"]
        assert settings.cluster.scheme == given["scheme"]
        assert settings.cluster.event_time == (given["arrival"] == "event")
        assert settings.cluster.store == given["store"]
        assert settings.cluster.slots == given["slots"]
        assert settings.cluster.leaves == given["leaves"]
        assert settings.cluster.intake_partitions == given["partitions"]["intake"]
        assert settings.cluster.registry_partitions == given["partitions"]["registry"]
        assert settings.cluster.partials_partitions == given["partitions"]["partials"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        peers = {"peers": settings.security.peer_port} if "peers" in ports else {}
        assert ports == {"grpc": settings.grpc_port, "http": settings.http_port} | peers


@pytest.mark.parametrize("values", WITH_GATEWAY, ids=lambda path: path.stem)
def test_a_gateway_knows_its_routers_and_nothing_else(values: Path) -> None:
    manifests = render(values)
    given = yaml.safe_load(values.read_text())["gateway"]
    pod = by_service(manifests, "Deployment")[GATEWAY]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    environment = environment_of(manifests, container)
    wanted = OF_THE_GATEWAY if "origins" in given else OF_THE_GATEWAY - {"SIROCCO_GATEWAY_ORIGINS"}
    secured = {"SIROCCO_TLS_CA", "SIROCCO_TLS_NAME"} if values == SECURED else set()
    names = {name for name in environment if name.startswith("SIROCCO_")}
    assert names == wanted | secured | {
        f"SIROCCO_{name}"
        for name in ("HOST", "NAME", "HTTP_PORT", "LOG_LEVEL", "KERNEL_CACHE", "UNREAD_TIMEOUT")
    }
    settings = read_gateway(environment)
    host, _, port = settings.routers.partition(":")
    [found] = of_kind(manifests, "Service")[host]["spec"]["ports"]
    assert found["port"] == int(port)
    assert settings.port == given.get("port", 8_090)
    assert settings.origins == tuple(given.get("origins", ()))
    assert settings.limits == replace(GatewayLimits(), memory_bytes=settings.limits.memory_bytes)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"api": settings.port, "http": settings.metrics_port}
    # Of the secret of certificates the authority's alone: no key.
    mounted = [volume["secret"] for volume in pod["volumes"] if "secret" in volume]
    items = [one["items"] for one in mounted]
    assert items == ([[{"key": "ca.crt", "path": "ca.crt"}]] if values == SECURED else [])
    if settings.ca:
        assert settings.ca.rpartition("/")[0] in {
            one["mountPath"] for one in container["volumeMounts"]
        }


def test_an_ingress_leads_to_the_api() -> None:
    manifests = render(FULL)
    [ingress] = of_kind(manifests, "Ingress").values()
    [rule] = ingress["spec"]["rules"]
    assert rule["host"] == "geo.example.org"
    [path] = rule["http"]["paths"]
    backend = path["backend"]["service"]
    [port] = of_kind(manifests, "Service")[backend["name"]]["spec"]["ports"]
    assert port["name"] == backend["port"]["name"]
    assert ingress["spec"]["tls"] == [{"hosts": ["geo.example.org"], "secretName": "geo-tls"}]
    assert of_kind(render(SECURED), "Ingress") == {}


def names_that_services_read() -> set[str]:
    """Returns every `SIROCCO_…` that is a whole string in the code of services and runtime."""
    files = [*(ROOT / "services").rglob("*.py"), *(ROOT / "sirocco" / "runtime").rglob("*.py")]
    return {
        node.value
        for path in files
        for node in ast.walk(ast.parse(path.read_text(), str(path)))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"SIROCCO_[A-Z_]+[A-Z]", node.value)
    }


def test_the_chart_knows_what_services_read() -> None:
    # For a process on a workstation: a pod's coordinator builds its first map without a sample.
    local = {"SIROCCO_SAMPLE"}
    # Only with a mesh, see `test_tokens_without_tls_are_meant`.
    meshed = {"SIROCCO_TOKENS_IN_PLAINTEXT"}
    known = ENVIRONMENT | SECURITY | CLIENTS | TRACES | OF_THE_GATEWAY | OF_A_CONNECTOR
    assert names_that_services_read() - known - local - meshed == set()


@every_case
def test_pods_are_confined(values: Path) -> None:
    for name, pod in pods_of(render(values)):
        assert pod["automountServiceAccountToken"] is False, name
        assert pod["enableServiceLinks"] is False, name
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["runAsUser"] > 0, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in containers_of(pod):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}, name
            assert "memory" in container["resources"]["limits"], name


@every_case
def test_what_a_process_writes_to_is_mounted(values: Path) -> None:
    for name, pod in pods_of(render(values)):
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for container in containers_of(pod):
            mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
            assert "/tmp" in mounts, name
            writable = [
                path for path, found in mounts.items() if "emptyDir" in volumes.get(found, ())
            ]
            # A read-only root needs a writable place for the kernels, and for Spark's shuffle
            # files.
            for variable in container.get("env", ()):
                if variable["name"] in {"SIROCCO_KERNEL_CACHE", "SPARK_LOCAL_DIRS"}:
                    path = variable["value"]
                    assert any(path == one or path.startswith(one + "/") for one in writable)


@every_case
def test_nothing_secret_is_written_down(values: Path) -> None:
    manifests = render(values)
    assert not of_kind(manifests, "Secret")
    for _, pod in pods_of(manifests):
        for container in containers_of(pod):
            for variable in container.get("env", ()):
                reported = variable.get("value", "")
                assert "@" not in reported, variable
                if variable["name"] == "SIROCCO_TOKENS":
                    assert reported.startswith("/etc/sirocco/"), variable
                elif re.search("PASSWORD|SECRET|TOKEN|KEY_ID", variable["name"]):
                    assert variable.keys() == {"name", "valueFrom"}, variable
                    assert variable["valueFrom"].keys() == {"secretKeyRef"}, variable


def test_secrets_are_referred_to() -> None:
    deployments = by_service(render(CHART / "ci" / "full-values.yaml"), "Deployment")
    for service in SERVICES:
        [container] = deployments[service]["spec"]["template"]["spec"]["containers"]
        [redis] = [one for one in container["env"] if one["name"] == "SIROCCO_REDIS"]
        assert redis == {
            "name": "SIROCCO_REDIS",
            "valueFrom": {"secretKeyRef": {"name": "sirocco-redis", "key": "address"}},
        }
        assert {"secretRef": {"name": "sirocco-bucket"}} in container["envFrom"]


def test_credentials_come_from_secrets_and_are_mounted_where_services_read_them() -> None:
    manifests = render(SECURED)
    for service, deployment in by_service(manifests, "Deployment").items():
        if service in {GATEWAY, CONNECTOR}:
            continue
        pod = deployment["spec"]["template"]["spec"]
        [container] = pod["containers"]
        variables = {one["name"]: one.get("valueFrom") for one in container["env"]}
        assert variables["SIROCCO_KAFKA_SASL_USERNAME"] == {
            "secretKeyRef": {"name": "sirocco-kafka", "key": "user"}
        }
        assert variables["SIROCCO_KAFKA_SASL_PASSWORD"] == {
            "secretKeyRef": {"name": "sirocco-kafka", "key": "secret"}
        }
        secrets = {
            one["name"]: one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one
        }
        # An authority of others is no secret.
        secrets |= {
            one["name"]: one["configMap"]["name"] for one in pod["volumes"] if one["name"] == "jwt"
        }
        mounts = {
            one["mountPath"]: secrets[one["name"]]
            for one in container["volumeMounts"]
            if one["name"] in secrets
        }
        environment = environment_of(manifests, container)
        files = {
            name: (mounts[str(Path(path).parent)], Path(path).name)
            for name, path in environment.items()
            if path.startswith("/etc/")
        }
        tokens = {
            "SIROCCO_TOKENS": ("sirocco-tokens", "lines"),
            "SIROCCO_JWT_KEYS_CA": ("sirocco-issuer", "ca.crt"),
        }
        assert files == (tokens if service in {"router", "merger"} else {}) | {
            "SIROCCO_TLS_CERTIFICATE": ("sirocco-tls", "tls.crt"),
            "SIROCCO_TLS_KEY": ("sirocco-tls", "tls.key"),
            "SIROCCO_TLS_CA": ("sirocco-tls", "ca.crt"),
            "SIROCCO_KAFKA_CA": ("kafka-tls", "ca.pem"),
            "SIROCCO_KAFKA_CERTIFICATE": ("kafka-tls", "tls.crt"),
            "SIROCCO_KAFKA_KEY": ("kafka-tls", "tls.key"),
            "SIROCCO_REDIS_CA": ("redis-tls", "ca.crt"),
        }


def test_clients_of_a_release_get_a_token_and_no_key() -> None:
    proposing = (
        *("spark.buildMap.enabled=true", "spark.buildMap.propose=true"),
        'spark.objects="/history"',
    )
    pods = dict(pods_of(render(SECURED, *proposing)))
    [test] = [pod for name, pod in pods.items() if name.endswith("-test")]
    [job] = [pod for name, pod in pods.items() if "build-map" in name]
    for pod, container in ((test, test["containers"][0]), (job, job["containers"][0])):
        files = {
            volume["secret"]["secretName"]: [item["path"] for item in volume["secret"]["items"]]
            for volume in pod["volumes"]
            if volume["name"].startswith("client-")
        }
        assert files == {"sirocco-tls": ["ca.crt"], "sirocco-client": ["token"]}
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        reported = [*container.get("args", ()), *(str(each["value"]) for each in container["env"])]
        for name, file in (("client-ca", "ca.crt"), ("client-token", "token")):
            assert any(f"{mounts[name]}/{file}" in each for each in reported)
        assert any("services.sirocco.internal" in each for each in reported)
        assert "tls" not in mounts


def test_other_services_have_a_port_of_their_own() -> None:
    manifests = render(SECURED)
    for service, deployment in by_service(manifests, "Deployment").items():
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        assert ("peers" in {port["name"] for port in container["ports"]}) == (service == "router")
    policy = by_service(manifests, "NetworkPolicy")["router"]["spec"]["ingress"]
    [peers] = [rule for rule in policy if rule["ports"] == [{"port": "peers"}]]
    [allowed] = peers["from"]
    assert set(allowed["podSelector"]["matchExpressions"][0]["values"]) == set(SERVICES)


def test_tokens_without_tls_are_meant() -> None:
    plain = 'security.tls.existingSecret.name=""'
    done = template(SECURED, plain)
    assert done.returncode != 0
    assert "plain text" in done.stderr
    [config] = of_kind(
        render(SECURED, plain, "security.tokens.inPlaintext=true"), "ConfigMap"
    ).values()
    assert config["data"]["SIROCCO_TOKENS_IN_PLAINTEXT"] == "allow"
    assert "SIROCCO_TLS_NAME" not in config["data"]
    done = template(SECURED, 'security.client.existingSecret.name=""')
    assert done.returncode != 0
    assert "security.client" in done.stderr


def test_an_issuer_of_jwts_is_known_to_what_clients_call() -> None:
    manifests = render(SECURED)
    for service, deployment in by_service(manifests, "Deployment").items():
        spec = deployment["spec"]["template"]["spec"]
        [container] = spec["containers"]
        environment = environment_of(manifests, container)
        mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        is_called = service in {"router", "merger"}
        assert ("jwt" in mounts) == ("SIROCCO_JWT_ISSUER" in environment) == is_called
        if is_called:
            jwt = from_environment(environment | {"SIROCCO_REDIS": "rediss://redis"}).security.jwt
            assert jwt is not None
            assert jwt.ca == f"{mounts['jwt']}/ca.crt"
            [volume] = [each for each in spec["volumes"] if each["name"] == "jwt"]
            assert volume["configMap"] == {"name": "sirocco-issuer"}


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ('security.jwt.audience=""', "audience"),
        (
            'security.jwt.keys.url="",security.jwt.keys.existingConfigMap.name=""',
            "name an address",
        ),
        ('security.jwt.keys.existingConfigMap.name=""', "caKey"),
        ('security.jwt.algorithms="HS256"', "algorithms"),
        ('security.tokens.existingSecret.name=""', "security.tokens"),
    ],
)
def test_half_of_an_issuer_is_refused(setting: str, words: str) -> None:
    done = template(SECURED, *setting.split(","))
    assert done.returncode != 0
    assert words in done.stderr


def test_without_security_nothing_is_mounted_for_it() -> None:
    for _, pod in pods_of(render(MINIMAL)):
        assert not [one for one in pod["volumes"] if "secret" in one]


def test_a_claim_is_mounted_where_the_archive_is_looked_for() -> None:
    manifests = render(CHART / "ci" / "small-values.yaml")
    [config] = of_kind(manifests, "ConfigMap").values()
    for deployment in by_service(manifests, "Deployment").values():
        pod = deployment["spec"]["template"]["spec"]
        [claim] = [one for one in pod["volumes"] if "persistentVolumeClaim" in one]
        [container] = pod["containers"]
        [mount] = [one for one in container["volumeMounts"] if one["name"] == claim["name"]]
        assert config["data"]["SIROCCO_ARCHIVE"].startswith(mount["mountPath"] + "/")


def test_values_reach_the_pods() -> None:
    manifests = render(CHART / "ci" / "full-values.yaml")
    evaluator = by_service(manifests, "Deployment")["evaluator"]["spec"]
    pod = evaluator["template"]["spec"]
    [container] = pod["containers"]
    assert evaluator["replicas"] == 24
    assert pod["terminationGracePeriodSeconds"] == 120
    assert pod["priorityClassName"] == "high"
    assert pod["nodeSelector"] == {"kubernetes.io/arch": "amd64"}
    assert pod["serviceAccountName"] == "sirocco-identity"
    assert container["image"].startswith("registry.example.org/sirocco@sha256:")
    assert {"name": "MALLOC_ARENA_MAX", "value": "2"} in container["env"]
    assert container["resources"]["limits"]["memory"] == "24Gi"
    router = by_service(manifests, "Service")["router"]
    assert router["spec"]["type"] == "LoadBalancer"
    labels = by_service(manifests, "Deployment")["router"]["spec"]["template"]["metadata"]["labels"]
    assert labels["example.org/cost-centre"] == "17"


def test_a_change_of_settings_replaces_the_pods() -> None:
    def checksums(*settings: str) -> set[str]:
        deployments = by_service(render(MINIMAL, *settings), "Deployment").values()
        return {
            one["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
            for one in deployments
        }

    assert len(checksums()) == 1
    assert checksums() != checksums("cluster.slots=32")


def test_names_fit_whatever_the_release_is_called() -> None:
    long = "a" * 53  # the longest that Helm takes
    done = helm("template", long, CHART, "--kube-version", KUBERNETES, "-f", MINIMAL)
    assert done.returncode == 0, done.stderr
    for found in filter(None, yaml.safe_load_all(done.stdout)):
        assert len(found["metadata"]["name"]) <= 63
        assert all(len(value) <= 63 for value in found["metadata"]["labels"].values())


def test_the_test_goes_the_way_of_clients() -> None:
    for values in CASES:
        manifests = render(values)
        [pod] = of_kind(manifests, "Pod").values()
        annotations = pod["metadata"]["annotations"]
        assert annotations["helm.sh/hook"] == "test"
        # Helm deletes before it reads logs: with `hook-succeeded`, `--logs` fails for a passed
        # test.
        assert annotations["helm.sh/hook-delete-policy"] == "before-hook-creation"
        script, address = pod["spec"]["containers"][0]["command"][2:]
        assert script == (CHART / "files" / "check.py").read_text()
        host, _, port = address.partition(":")
        service = of_kind(manifests, "Service")[host]
        assert int(port) == service["spec"]["ports"][0]["port"]


def test_missing_required_values_are_named() -> None:
    done = helm("template", "rel", CHART, "--kube-version", KUBERNETES)
    assert done.returncode != 0
    for place in ("kafka", "redis", "archive"):
        assert place in done.stderr


@pytest.mark.parametrize(
    ("setting", "place"),
    [
        ('kafka.bootstrapServers=""', "kafka"),
        ('kafka.bootstrapServers="kafka"', "kafka"),
        ('kafka.bootstrapServers="kafka:9092, other:9092"', "kafka"),
        ('kafka.bootstrapServer="kafka:9092"', "kafka"),
        ('redis.url="redis://:secret@redis:6379"', "redis"),
        ('redis.url="http://redis:6379"', "redis"),
        ('redis.url=""', "redis"),
        ('kafka.security="tls"', "security"),
        ('kafka.compression="brotli"', "compression"),
        ('kafka.security="sasl_ssl"', "sasl"),
        ('kafka.sasl.mechanism="GSSAPI"', "mechanism"),
        ('kafka.sasl.existingSecret.name="unused"', "sasl"),
        ('kafka.sasl.password="secret"', "sasl"),
        ('kafka.tls.existingSecret.name="unused"', "tls"),
        ('redis.tls.existingSecret.name="unused"', "redis"),
        ('archive.url="/archive/without-a-claim"', "archive"),
        ('archive.url="/var/lib/elsewhere"', "archive"),
        ('archive.url="s3://key:secret@bucket"', "archive"),
        ('cluster.scheme="quadtree"', "cluster"),
        ('cluster.arrival="event-time"', "cluster"),
        ('cluster.arrival="event"', "intake"),
        ('cluster.retention="a day"', "retention"),
        ("cluster.archiveRetention=30", "archiveRetention"),
        ("cluster.storeBytes=0", "storeBytes"),
        ("cluster.slots=0", "cluster"),
        ('cluster.slots="16"', "cluster"),
        ("cluster.partitions.intake=0.5", "cluster"),
        ('cluster.name="Not a name"', "cluster"),
        ('logLevel="loud"', "logLevel"),
        ("httpPort=80", "httpPort"),
        ("router.replicas=-1", "router"),
        ("router.replica=1", "router"),
        ('evaluator.resources.limits.memory="lots"', "evaluator"),
        ("evaluator.terminationGracePeriodSeconds=5", "evaluator"),
        ('evaluator.service.type="NodePort"', "evaluator"),
        ('evaluator.env=[{"value": "nameless"}]', "evaluator"),
        ('merger.service.type="ExternalName"', "merger"),
        ("merger.podDisruptionBudget.minAvailable=1", "merger"),
        ('merger.podDisruptionBudget.maxUnavailable="half"', "merger"),
        ("podSecurityContext.runAsNonRoot=false", "podSecurityContext"),
        ('image.digest="latest"', "image"),
        ("security.tls.peerPort=80", "peerPort"),
        ('security.tokens.existingSecret.token="x"', "token"),
        ("zookeeper=1", "zookeeper"),
        ("gateway.port=80", "gateway"),
        ('gateway.origins=["example.org"]', "gateway"),
        ('gateway.autoscaling.kind="keda"', "gateway"),
        ("gateway.ingress.enabled=true", "hosts"),
        ("gateway.limits.streams=0", "gateway"),
    ],
)
def test_a_wrong_value_is_refused(setting: str, place: str) -> None:
    done = template(MINIMAL, setting)
    assert done.returncode != 0
    assert place in done.stderr


@pytest.mark.parametrize("cpu", [0.5, 2, "500m", "0.5"])
def test_a_quantity_may_be_a_number_as_for_kubernetes(cpu: float | str) -> None:
    manifests = render(MINIMAL, f"evaluator.resources.requests.cpu={json.dumps(cpu)}")
    pod = by_service(manifests, "Deployment")["evaluator"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["resources"]["requests"]["cpu"] == cpu


def test_a_certificate_comes_with_its_key() -> None:
    done = template(SECURED, 'kafka.tls.existingSecret.keyKey=""')
    assert done.returncode != 0
    assert "keyKey" in done.stderr


def notes(tmp_path: Path, *settings: str) -> str:
    """Returns the notes shown after an installation.

    Helm renders them without a cluster, but shows them only with one: so a copy of the chart holds
    them in a manifest.
    """
    chart = shutil.copytree(CHART, tmp_path / "sirocco", dirs_exist_ok=True)
    (chart / "templates" / "NOTES.txt").rename(chart / "notes.txt")
    (chart / "templates" / "notes.yaml").write_text(
        "kind: Notes\nmetadata: {name: notes}\n"
        'text: |\n{{ tpl (.Files.Get "notes.txt") . | indent 2 }}'
    )
    sets = [word for setting in settings for word in ("--set", setting)]
    done = helm("template", "rel", chart, "--kube-version", KUBERNETES, "-f", MINIMAL, *sets)
    assert done.returncode == 0, done.stderr
    [found] = [one for one in yaml.safe_load_all(done.stdout) if one and one["kind"] == "Notes"]
    return str(found["text"])


def test_notes_name_addresses_that_exist(tmp_path: Path) -> None:
    text = notes(tmp_path)
    services = of_kind(render(MINIMAL), "Service")
    deployments = set(re.findall(r"deploy/(rel-sirocco-[a-z]+)", text))
    assert deployments <= of_kind(render(MINIMAL), "Deployment").keys()
    named = set(re.findall(r"(?<!deploy/)(?<!-)rel-sirocco-[a-z]+", text))
    assert named == services.keys()
    assert "WARNING" not in text


_COMMAND = "sirocco cluster --router rel-sirocco-router:7070"
_TLS = "security.tls.existingSecret.name=certificates"
_TOKENS = "security.client.existingSecret.name=client,security.tokens.existingSecret.name=tokens"
_PLAIN = "security.tokens.inPlaintext=true"


@pytest.mark.parametrize(
    ("settings", "command"),
    [
        ((), _COMMAND),
        ((_TLS,), f"{_COMMAND} --ca /etc/sirocco/tls/ca.crt"),
        ((_TOKENS, _PLAIN), f"{_COMMAND} --token-file /dev/stdin < operator.token"),
        (
            (_TLS, _TOKENS),
            f"{_COMMAND} --ca /etc/sirocco/tls/ca.crt --token-file /dev/stdin < operator.token",
        ),
    ],
)
def test_notes_connect_as_clients_do(
    tmp_path: Path, settings: tuple[str, ...], command: str
) -> None:
    words = " ".join(notes(tmp_path, *settings).replace("\\\n", " ").split())
    exec_ = "exec -i deploy" if "operator.token" in command else "exec deploy"
    assert f"{exec_}/rel-sirocco-router -- {command} " in f"{words} "
    assert ("--ca" in words, "--token-file" in words) == ("--ca" in command, "stdin" in command)


@pytest.mark.parametrize(
    ("setting", "warning"),
    [
        ("evaluator.replicas=17", "17 evaluators share 16 slots"),
        ("coordinator.replicas=1", "only one coordinator"),
        (
            "evaluator.autoscaling.kind=hpa,evaluator.autoscaling.maxReplicas=20",
            "20 evaluators share 16 slots",
        ),
        ("merger.replicas=5", "5 mergers share 4 Kafka partitions of `partials`"),
        (
            "router.autoscaling.kind=hpa,router.autoscaling.maxReplicas=9",
            "9 routers share 8 Kafka partitions of `intake`",
        ),
        (
            "router.autoscaling.kind=hpa,router.resources.requests=null",
            "router: scaling by CPU needs",
        ),
        (
            "development.enabled=true,kafka.bootstrapServers=,redis.url=,archive.url=",
            "nothing replicated",
        ),
    ],
)
def test_notes_warn(tmp_path: Path, setting: str, warning: str) -> None:
    assert warning in notes(tmp_path, setting)
