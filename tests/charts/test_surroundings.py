"""The chart's other manifests: servers for development, scalers, policies, jobs."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sirocco.services.connector.config import read_config
from sirocco.transport.archive import folder_of
from sirocco.transport.log import RECORD_BYTES_MAX
from tests.charts.rendering import (
    CHART,
    CONNECTED_VALUES,
    DEVELOPMENT,
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
    needs_helm,
    of_kind,
    render,
    services_in,
    template,
)
from tests.charts.test_schemas import CRDS, errors_of

pytestmark = needs_helm


def labels_of(manifests: tuple[Manifest, ...]) -> dict[str, dict[str, str]]:
    """Returns the labels of the release's pods, by the names of their creators."""
    found = {}
    for one in manifests:
        name, spec = one["metadata"]["name"], one.get("spec", {})
        if one["kind"] == "Pod":
            found[name] = one["metadata"]["labels"]
        elif one["kind"] == "CronJob":
            found[name] = spec["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
        elif one["kind"] in {"Deployment", "StatefulSet", "Job"}:
            found[name] = spec["template"]["metadata"]["labels"]
    return found


def met(selector: Manifest, labels: dict[str, str]) -> bool:
    if not selector.get("matchLabels", {}).items() <= labels.items():
        return False
    return all(
        labels.get(one["key"]) in one["values"]
        if one["operator"] == "In"
        else one["key"] not in labels
        for one in selector.get("matchExpressions", ())
    )


# --- development


def test_development_brings_what_the_services_look_for() -> None:
    manifests = render(DEVELOPMENT)
    services = of_kind(manifests, "Service")
    labels = labels_of(manifests)
    [router] = by_service(manifests, "Deployment")["router"]["spec"]["template"]["spec"][
        "containers"
    ]
    environment = environment_of(manifests, router)
    for address, name in (
        (environment["SIROCCO_KAFKA"], "rel-sirocco-kafka"),
        (environment["SIROCCO_REDIS"].split("/")[2], "rel-sirocco-redis"),
    ):
        host, _, port = address.partition(":")
        assert host == name
        [found] = services[host]["spec"]["ports"]
        assert found["port"] == int(port)
        selected = [
            who
            for who, own in labels.items()
            if met({"matchLabels": services[host]["spec"]["selector"]}, own)
        ]
        assert selected == [name]
    [claim] = of_kind(manifests, "PersistentVolumeClaim")
    for deployment in by_service(manifests, "Deployment").values():
        volumes = deployment["spec"]["template"]["spec"]["volumes"]
        assert {"name": "archive", "persistentVolumeClaim": {"claimName": claim}} in volumes
    assert environment["SIROCCO_ARCHIVE"] == "/archive"


def test_the_broker_for_development_is_set_up_as_sirocco_wants_it() -> None:
    config = of_kind(render(DEVELOPMENT), "ConfigMap")["rel-sirocco-kafka"]["data"]
    lines = config["server.properties"].splitlines()
    properties = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    assert int(properties["message.max.bytes"]) > RECORD_BYTES_MAX
    assert properties["log.retention.ms"] == "-1"
    assert properties["auto.create.topics.enable"] == "false"
    assert properties["advertised.listeners"] == "PLAINTEXT://rel-sirocco-kafka:9092"
    broker = of_kind(render(DEVELOPMENT), "StatefulSet")["rel-sirocco-kafka"]["spec"]
    [container] = broker["template"]["spec"]["containers"]
    [mount] = [one for one in container["volumeMounts"] if one["name"] == "data"]
    assert properties["log.dirs"].startswith(mount["mountPath"] + "/")
    [word] = [
        line.split()[1] for line in container["command"][2].splitlines() if "--cluster-id" in line
    ]
    # The format tool needs 16 bytes in base64, without padding.
    assert len(base64.urlsafe_b64decode(word + "==")) == 16


def test_parts_of_development_can_be_your_own() -> None:
    manifests = render(
        DEVELOPMENT,
        "development.kafka.enabled=false",
        'kafka.bootstrapServers="kafka.data:9092"',
    )
    assert not of_kind(manifests, "StatefulSet")
    assert of_kind(manifests, "ConfigMap")["rel-sirocco"]["data"]["SIROCCO_KAFKA"] == (
        "kafka.data:9092"
    )
    assert "rel-sirocco-redis" in of_kind(manifests, "Deployment")


@pytest.mark.parametrize(
    ("setting", "place"),
    [
        ('kafka.bootstrapServers="kafka:9092"', "bootstrapServers"),
        ('kafka.security="ssl"', "security"),
        ('redis.url="redis://redis:6379"', "redis"),
        ('archive.url="s3://bucket/prefix"', "archive"),
        ("development.redis.enabled=false", "redis"),
        ('development.archive.accessModes=["ReadOnlyMany"]', "accessModes"),
    ],
)
def test_development_and_your_own_are_not_mixed_up(setting: str, place: str) -> None:
    done = template(DEVELOPMENT, setting)
    assert done.returncode != 0
    assert place in done.stderr


# --- scaling


def test_a_scaler_counts_and_the_deployment_does_not() -> None:
    manifests = render(OBSERVED)
    deployments = by_service(manifests, "Deployment")
    scalers = by_service(manifests, "HorizontalPodAutoscaler")
    scalers |= by_service(manifests, "ScaledObject")
    assert set(scalers) == {"router", "evaluator", "merger"}
    for service, deployment in deployments.items():
        assert ("replicas" in deployment["spec"]) == (service in {"coordinator", "gateway"})
    for service, scaler in scalers.items():
        target = scaler["spec"]["scaleTargetRef"]
        assert (target["kind"], target["name"]) == (
            "Deployment",
            deployments[service]["metadata"]["name"],
        )
        [container] = deployments[service]["spec"]["template"]["spec"]["containers"]
        assert "cpu" in container["resources"]["requests"]
    evaluator = scalers["evaluator"]["spec"]
    assert (evaluator["minReplicaCount"], evaluator["maxReplicaCount"]) == (4, 16)
    assert {one["type"] for one in evaluator["triggers"]} == {"cpu", "prometheus"}
    assert not by_service(render(MINIMAL), "HorizontalPodAutoscaler")


def test_pods_are_taken_away_one_by_one() -> None:
    manifests = render(OBSERVED)
    router = by_service(manifests, "HorizontalPodAutoscaler")["router"]["spec"]["behavior"]
    evaluator = by_service(manifests, "ScaledObject")["evaluator"]["spec"]["advanced"]
    for behaviour in (router, evaluator["horizontalPodAutoscalerConfig"]["behavior"]):
        down = behaviour["scaleDown"]
        assert down["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 60}]
        assert down["stabilizationWindowSeconds"] == 600


def test_keda_needs_a_place_to_ask() -> None:
    done = template(MINIMAL, 'evaluator.autoscaling.kind="keda"')
    assert done.returncode != 0
    assert "prometheus" in done.stderr


# --- draining


@every_case
def test_a_drain_fits_into_the_grace(values: Path) -> None:
    for service, deployment in by_service(render(values), "Deployment").items():
        pod = deployment["spec"]["template"]["spec"]
        [container] = pod["containers"]
        waits = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command")
        assert (waits is not None) == (service in {"router", "merger", "gateway"})
        seconds = int(waits[-1]) if waits else 0
        handing_over = HAND_OVER_S if service == "evaluator" else 0
        assert pod["terminationGracePeriodSeconds"] >= seconds + handing_over + DRAIN_S + 5


def seconds_of(name: str, path: str) -> float:
    """Returns a constant of the code without an import, which would compile kernels."""
    found = re.search(rf"^{name} = ([0-9.]+)$", (ROOT / path).read_text(), re.M)
    assert found is not None
    return float(found[1])


HAND_OVER_S = seconds_of("HAND_OVER_S", "services/evaluator/service.py")
DRAIN_S = seconds_of("DRAIN_S", "sirocco/runtime/service.py")


def test_a_grace_that_is_too_short_is_refused() -> None:
    done = template(MINIMAL, "router.preStopSeconds=30")
    assert done.returncode != 0
    assert "router.terminationGracePeriodSeconds" in done.stderr


# --- who may call whom


def callers(manifests: tuple[Manifest, ...], service: str, port: str) -> set[str] | None:
    """Returns the names of the creators of pods that may connect; None for all."""
    policy = by_service(manifests, "NetworkPolicy")[service]["spec"]
    labels = labels_of(manifests)
    found: set[str] = set()
    for rule in policy["ingress"]:
        if [one["port"] for one in rule["ports"]] != [port]:
            continue
        if "from" not in rule:
            return None
        for peer in rule["from"]:
            if "namespaceSelector" in peer:
                found.add(peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"])
            else:
                found |= {who for who, own in labels.items() if met(peer["podSelector"], own)}
    return found


@every_case
def test_a_policy_means_the_pods_of_its_service(values: Path) -> None:
    manifests = render(values)
    labels = labels_of(manifests)
    policies = by_service(manifests, "NetworkPolicy")
    assert set(policies) == services_in(manifests)
    for service, policy in policies.items():
        selected = {who for who, own in labels.items() if met(policy["spec"]["podSelector"], own)}
        assert selected == {by_service(manifests, "Deployment")[service]["metadata"]["name"]}


def test_clients_come_to_routers_and_mergers_alone() -> None:
    own = {f"rel-sirocco-{service}" for service in SERVICES}
    manifests = render(MINIMAL)
    assert callers(manifests, "router", "grpc") is None
    assert callers(manifests, "merger", "grpc") is None
    assert callers(manifests, "evaluator", "grpc") == own
    assert callers(manifests, "coordinator", "grpc") == own
    manifests = render(OBSERVED)
    jobs = set(of_kind(manifests, "CronJob")) | set(of_kind(manifests, "Job"))
    for service in ("router", "merger"):
        assert callers(manifests, service, "grpc") == own | jobs | {
            *("apps", "rel-sirocco-test", "rel-sirocco-gateway")
        }
    assert callers(manifests, "gateway", "api") is None
    named = render(OBSERVED, 'networkPolicy.gatewayClients=[{"podSelector": {}}]')
    assert "rel-sirocco-test" in (callers(named, "gateway", "api") or ())
    for service in (*SERVICES, "gateway"):
        assert callers(manifests, service, "http") == {"monitoring"}


def test_servers_for_development_serve_this_release_alone() -> None:
    manifests = render(DEVELOPMENT)
    policies = of_kind(manifests, "NetworkPolicy")
    labels = labels_of(manifests)
    for name in ("rel-sirocco-kafka", "rel-sirocco-redis"):
        spec = policies[name]["spec"]
        assert {who for who, own in labels.items() if met(spec["podSelector"], own)} == {name}
        [rule] = spec["ingress"]
        [peer] = rule["from"]
        assert all(met(peer["podSelector"], own) for own in labels.values())
        assert not met(peer["podSelector"], {"app.kubernetes.io/instance": "other"})


def test_egress_lists_its_targets() -> None:
    policies = by_service(render(OBSERVED), "NetworkPolicy")
    # It calls routers and mergers alone.
    own = policies.pop("gateway")["spec"]["egress"]
    [to] = [one["to"] for one in own if "to" in one]
    assert to[0]["podSelector"]["matchExpressions"][0]["values"] == ["router", "merger"]
    for policy in policies.values():
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
        assert {"ports": [{"port": 9092}, {"port": 6379}, {"port": 443}]} in policy["spec"][
            "egress"
        ]


# --- metrics


def test_a_monitor_finds_every_pod_once() -> None:
    manifests = render(OBSERVED)
    [monitor] = of_kind(manifests, "PodMonitor").values()
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    labels = labels_of(manifests)
    selected = {who for who, own in labels.items() if met(monitor["spec"]["selector"], own)}
    jobs = set(of_kind(manifests, "CronJob")) | set(of_kind(manifests, "Job"))
    assert selected == {f"rel-sirocco-{service}" for service in services_in(manifests)} | jobs
    assert "rel-sirocco-test" not in selected
    for deployment in by_service(manifests, "Deployment").values():
        annotations = deployment["spec"]["template"]["metadata"]["annotations"]
        assert "prometheus.io/scrape" not in annotations
    manifests = render(OBSERVED, 'monitoring.monitor.kind="ServiceMonitor"')
    [monitor] = of_kind(manifests, "ServiceMonitor").values()
    services = {
        name: found["metadata"]["labels"] for name, found in of_kind(manifests, "Service").items()
    }
    selected = {who for who, own in services.items() if met(monitor["spec"]["selector"], own)}
    assert selected == {"rel-sirocco-pods"}
    if CRDS.is_dir():
        assert errors_of(monitor, "1.37") == []


def test_annotations_lead_to_metrics_where_no_monitor_does() -> None:
    for deployment in by_service(render(MINIMAL), "Deployment").values():
        annotations = deployment["spec"]["template"]["metadata"]["annotations"]
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        [port] = [one["containerPort"] for one in container["ports"] if one["name"] == "http"]
        assert annotations["prometheus.io/port"] == str(port)
        assert annotations["prometheus.io/scrape"] == "true"


# --- Spark


def specs_of_jobs(manifests: tuple[Manifest, ...]) -> Iterator[tuple[str, Manifest]]:
    for name, found in of_kind(manifests, "CronJob").items():
        yield name, found["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    for name, found in of_kind(manifests, "Job").items():
        yield name, found["spec"]["template"]["spec"]


def test_jobs_run_when_they_should() -> None:
    manifests = render(OBSERVED)
    assert {
        name: found["spec"]["schedule"] for name, found in of_kind(manifests, "CronJob").items()
    } == {"rel-sirocco-build-map": "17 3 * * *", "rel-sirocco-compact": "17 4 * * 0"}
    assert set(of_kind(manifests, "Job")) == {"rel-sirocco-statistics-1"}
    assert not list(specs_of_jobs(render(MINIMAL)))


def options_of(job: str) -> set[str]:
    """Returns the options of the job's parser from its source: an import would compile kernels."""
    jobs = ROOT / "spark-jobs"
    own = (jobs / job).read_text()
    sources = [own, (jobs / "sirocco_spark" / "job.py").read_text()]
    shared = (jobs / "sirocco_spark" / "options.py").read_text()
    of_history, of_map = shared.split("def map_parser")
    if "map_parser(" in own or "history_parser(" in own:
        sources.append(of_history)
    if "map_parser(" in own:
        sources.append(of_map)
    return set(re.findall(r'add_argument\(\s*"(--[a-z-]+)"', "".join(sources)))


def test_jobs_receive_options_that_they_understand() -> None:
    reported = {}
    for name, pod in specs_of_jobs(render(OBSERVED)):
        [container] = [one for one in containers_of(pod) if one["name"] == "spark"]
        job = Path(container["command"][-1]).name
        assert {one for one in container["args"] if one.startswith("--")} <= options_of(job)
        reported[name] = container["args"]
    assert reported["rel-sirocco-build-map"] == [
        *("--objects", "archive:s3://sirocco-archive/observed/sirocco"),
        *("--queries", "kafka:kafka-0.kafka:9092,kafka-1.kafka:9092/sirocco"),
        *("--scheme", "qt-tree", "--leaves", "64", "--slots", "16"),
        *("--out", "/scratch/proposal", "--sample", "100000"),
    ]
    assert reported["rel-sirocco-compact"][-1] == "s3://sirocco-archive/compacted/$(POD_NAME)"


def test_jobs_look_for_the_archive_where_services_keep_it() -> None:
    options = "endpoint_override=http%3A%2F%2Fminio%3A9000&region=us-east-1"
    for archive in ("s3://bucket/prefix", "s3://bucket/prefix/", f"s3://bucket/prefix?{options}"):
        manifests = render(
            OBSERVED,
            f'archive.url="{archive}"',
            f'spark.compact.out="s3://bucket/compacted?{options}"',
        )
        jobs = dict(specs_of_jobs(manifests))
        place = folder_of(archive, "sirocco")
        [compact] = jobs["rel-sirocco-compact"]["containers"]
        assert compact["args"] == [
            *("--archive", place),
            *("--out", f"s3://bucket/compacted/$(POD_NAME)?{options}"),
        ]
        [build] = jobs["rel-sirocco-build-map"]["initContainers"]
        assert build["args"][:2] == ["--objects", f"archive:{place}"]


def test_a_map_is_proposed_from_where_it_was_written() -> None:
    jobs = dict(specs_of_jobs(render(OBSERVED)))
    pod = jobs["rel-sirocco-build-map"]
    [spark] = pod["initContainers"]
    [propose] = pod["containers"]
    place = spark["args"][spark["args"].index("--out") + 1]
    assert propose["args"] == ["rel-sirocco-router:7070", place]
    for container in (spark, propose):
        mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
        assert mounts["/scratch"] == "scratch"
    jobs = dict(specs_of_jobs(render(OBSERVED, "spark.buildMap.propose=false")))
    [alone] = jobs["rel-sirocco-build-map"]["containers"]
    assert alone["name"] == "spark"


def test_jobs_authenticate_to_kafka() -> None:
    jobs = dict(specs_of_jobs(render(SECURED, "spark.buildMap.enabled=true")))
    [spark] = jobs["rel-sirocco-build-map"]["initContainers"]
    variables = {one["name"]: one for one in spark["env"]}
    assert variables["SIROCCO_KAFKA_SASL_PASSWORD"]["valueFrom"] == {
        "secretKeyRef": {"name": "sirocco-kafka", "key": "secret"}
    }
    assert "/etc/sirocco/kafka" in {one["mountPath"] for one in spark["volumeMounts"]}


@pytest.mark.parametrize(
    ("setting", "place"),
    [
        ("spark.statistics.enabled=true", "out"),
        ('spark.buildMap.schedule="daily"', "schedule"),
        ('spark.driverMemory="3 GB"', "driverMemory"),
        ('monitoring.monitor.kind="Probe"', "kind"),
        ('monitoring.rules.runbooks="docs/guides/runbooks.md"', "runbooks"),
        ('router.autoscaling.kind="vpa"', "kind"),
        ("coordinator.autoscaling={}", "coordinator"),
        ("networkPolicy.client=[]", "networkPolicy"),
    ],
)
def test_a_wrong_value_is_refused(setting: str, place: str) -> None:
    done = template(MINIMAL, setting)
    assert done.returncode != 0
    assert place in done.stderr


def test_every_default_is_described() -> None:
    # A value in values.yaml that the schema lacks would be refused; the reverse could be set, but
    # no user would know of it.
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    def properties(part: Manifest) -> Manifest:
        if "$ref" in part:
            part = schema["$defs"][part["$ref"].rpartition("/")[2]]
        found: Manifest = part.get("properties", {})
        return found

    def compare(part: Manifest, given: Manifest, path: str) -> None:
        known = properties(part)
        if not known or path == ".podSecurityContext":
            return
        assert set(known) - {"requests", "limits"} <= set(given), path
        for name, value in given.items():
            if isinstance(value, dict) and name in known:
                compare(known[name], value, f"{path}.{name}")

    compare(schema, values, "")


# --- the connector


def connector(*settings: str, values: Path = MINIMAL) -> tuple[Manifest, ...]:
    return render(
        values, "connector.enabled=true", f"connector.config={json.dumps(CONNECTED)}", *settings
    )


CONNECTED = {
    "sources": {
        "orders": {
            "kind": "kafka",
            "bootstrap": "kafka:9092",
            "topics": ["orders"],
            "dead_letters": "dead",
            "security": {"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "u"}
            | {"password": "${KAFKA_PASSWORD}"},
        }
    }
}


@pytest.mark.parametrize("values", [MINIMAL, SECURED], ids=lambda path: path.stem)
def test_a_connector_reads_its_configuration(values: Path) -> None:
    manifests = connector(
        'connector.existingSecret="of-kafka"', 'connector.tokenSecret.name="mine"', values=values
    )
    pod = by_service(manifests, "Deployment")["connector"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["envFrom"] == [{"secretRef": {"name": "of-kafka"}}]
    environment = {one["name"]: one.get("value", "") for one in container["env"]}
    path = environment["SIROCCO_CONNECTOR_CONFIG"]
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert path == f"{mounts['connector']}/connector.yaml"
    text = of_kind(manifests, "ConfigMap")["rel-sirocco-connector"]["data"]["connector.yaml"]
    given = yaml.safe_load(text)
    assert given["token_file"] == f"{mounts['token']}/token"
    assert ("tls" in given) == (values == SECURED)
    if values == SECURED:
        assert given.pop("tls")["ca"] == f"{mounts['client-ca']}/ca.crt"
    # Of the pod alone.
    del given["token_file"]
    config = read_config(json.dumps(given), {"KAFKA_PASSWORD": "secret"})
    host, _, port = config.router.partition(":")
    [found] = of_kind(manifests, "Service")[host]["spec"]["ports"]
    assert found["port"] == int(port)
    assert list(config.sources) == ["orders"]
    ports = {port["name"] for port in container["ports"]}
    assert ports == {"http"}
    for found in manifests:
        assert not errors_of(found, "1.27"), found["metadata"]["name"]


def test_the_connector_of_the_example_reads_its_configuration() -> None:
    manifests = render(CONNECTED_VALUES)
    text = of_kind(manifests, "ConfigMap")["rel-sirocco-connector"]["data"]["connector.yaml"]
    given = yaml.safe_load(text)
    names = re.findall(r"\$\{(\w+)\}", text)
    # A file of the pod's.
    ca = Path(__file__)
    for one in (*given["sources"].values(), *given["sinks"].values()):
        for section in (one, one.get("state", {})):
            if "security" in section:
                assert section["security"]["ca"].startswith("/etc/shop/")
                section["security"]["ca"] = str(ca)
    secrets = dict.fromkeys(names, "secret") | {"WEBHOOK_SECRET": "whsec_" + "c2VjcmV0" * 4}
    config = read_config(json.dumps(given), secrets)
    assert list(config.sources) == ["orders"]
    assert list(config.sinks) == ["alerts", "desk", "fleet"]
    pod = by_service(manifests, "Deployment")["connector"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert {"name": "shop", "mountPath": "/etc/shop", "readOnly": True} in container["volumeMounts"]
    assert "shop" in {volume["name"] for volume in pod["volumes"]}


def test_nobody_calls_a_connector_and_it_reaches_what_it_is_given() -> None:
    rules = '"to": [{}], "connector": [{"ports": [{"port": 9092}]}]'
    egress = f'networkPolicy.egress={{"enabled": true, {rules}}}'
    manifests = connector(egress)
    policy = of_kind(manifests, "NetworkPolicy")["rel-sirocco-connector"]["spec"]
    [scraped] = policy["ingress"]
    assert scraped == {"ports": [{"port": "http"}]}
    assert policy["egress"][-1] == {"ports": [{"port": 9092}]}
    [routers] = [rule for rule in policy["egress"] if rule.get("ports") == [{"port": "grpc"}]]
    [peer] = routers["to"]
    assert peer["podSelector"]["matchExpressions"][0]["values"] == ["router", "merger"]
    for service in ("router", "merger"):
        named = render(
            MINIMAL,
            "connector.enabled=true",
            f"connector.config={json.dumps(CONNECTED)}",
            'networkPolicy.clients=[{"podSelector": {"matchLabels": {"app": "x"}}}]',
        )
        rules = of_kind(named, "NetworkPolicy")[f"rel-sirocco-{service}"]["spec"]["ingress"]
        [own] = [
            each["podSelector"]["matchExpressions"][0]["values"]
            for each in rules[0]["from"]
            if "matchExpressions" in each["podSelector"]
        ]
        assert "connector" in own


def test_the_test_asks_every_instance_of_a_connector() -> None:
    scrapers = 'networkPolicy.scrapers=[{"podSelector": {"matchLabels": {"app": "prometheus"}}}]'
    manifests = connector(scrapers, "httpPort=9191")
    [pod] = of_kind(manifests, "Pod").values()
    given = environment_of(manifests, pod["spec"]["containers"][0])
    host, _, port = given["SIROCCO_CHECK_CONNECTOR"].partition(":")
    service = of_kind(manifests, "Service")[host]["spec"]
    assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True)
    assert service["ports"] == [{"name": "http", "port": int(port), "targetPort": "http"}]
    assert port == "9191"
    policy = of_kind(manifests, "NetworkPolicy")["rel-sirocco-connector"]["spec"]
    [metrics] = policy["ingress"]
    asked = [each["podSelector"]["matchLabels"] for each in metrics["from"]]
    assert asked[0] == {"app": "prometheus"}
    assert asked[1].items() <= pod["metadata"]["labels"].items()
    without = render(MINIMAL)
    [pod] = of_kind(without, "Pod").values()
    assert "SIROCCO_CHECK_CONNECTOR" not in environment_of(without, pod["spec"]["containers"][0])
    assert "rel-sirocco-connector" not in of_kind(without, "Service")


def test_a_connector_without_a_configuration_is_refused() -> None:
    done = template(MINIMAL, "connector.enabled=true")
    assert done.returncode != 0
    assert "connector" in done.stderr
