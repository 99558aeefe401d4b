"""The chart on a real cluster: installed, scaled, upgraded, with pods deleted under load.

KUBECONFIG names the cluster, SIROCCO_IMAGES_TAG the images on its nodes. While a client in the
cluster publishes and receives, pods start and end; the received matches have to be the oracle's,
each exactly once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.charts.prometheus import Prometheus, needs_prometheus, queries_of
from tests.kubernetes.cluster import (
    CHART,
    RELEASE,
    ROOT,
    SERVICES,
    ApiProxy,
    Client,
    ClientPod,
    await_job_pod,
    await_rollout,
    deployment,
    helm,
    install,
    job,
    kubectl,
    namespace,
    needs_cluster,
    pods,
    settings,
)

SEED = 20261121
pytestmark = needs_cluster
JOB_S = 1_800
# Until an evaluator has ended for lack of a checkpoint.
LOST_S = 300.0

# The nightly job, once and now, sized for the node.
BUILD_MAP = (
    "--set=spark.buildMap.enabled=true",
    "--set-string=spark.buildMap.schedule=",
    "--set-string=spark.driverMemory=1g",
    "--set=spark.resources.requests.cpu=100m",
    "--set-string=spark.resources.requests.memory=1Gi",
    "--set=spark.lingerSeconds=60",
)


@pytest.fixture(scope="module")
def release() -> Iterator[None]:
    with namespace():
        install()
        yield


@pytest.fixture(scope="module")
def client_pod(release: None) -> Iterator[None]:
    with ClientPod():
        yield


@pytest.mark.usefixtures("release")
def test_helm_test_finds_a_match_and_reports_it() -> None:
    for _ in range(2):  # the second one removes the first's pod
        output = helm("test", RELEASE, "--logs", "--timeout=15m")
        assert "Phase:          Succeeded" in output
        assert "matched after" in output


@pytest.mark.usefixtures("client_pod")
def test_scaling_evaluators_under_load() -> None:
    with Client("scale", f"{SEED}-scale") as client:
        client.progress()
        for count in (3, 1, 2):
            kubectl("scale", deployment("evaluator"), f"--replicas={count}")
            await_rollout("evaluator")
            print(f"{count} evaluators: matching went on after {client.progress():.1f} s")
            assert len(pods("evaluator")) == count
        print(f"{client.finish()} objects, all as the oracle says")


@pytest.mark.usefixtures("client_pod")
@pytest.mark.parametrize("how", ["--grace-period=30", "--grace-period=0"])
@pytest.mark.parametrize("service", ["evaluator", "router", "merger"])
def test_a_deleted_pod_under_load(service: str, how: str) -> None:
    name = f"delete-{service}-{how[-1]}{len(how)}"
    force = ["--force"] if how.endswith("=0") else []
    with Client(name, f"{SEED}-{name}") as client:
        client.progress()
        victim = pods(service)[0]["metadata"]["name"]
        slowest_s = client.lose(service, victim, how, *force)
        print(f"{victim} deleted, {how}: the slowest matches came after {slowest_s:.1f} s")
        print(f"{client.finish()} objects, all as the oracle says")


def all_pods() -> set[str]:
    return {one["metadata"]["uid"] for service in SERVICES for one in pods(service)}


@pytest.mark.usefixtures("client_pod")
def test_a_rolling_upgrade_under_load() -> None:
    before = all_pods()
    with Client("upgrade", f"{SEED}-upgrade") as client:
        client.progress()
        begun_s = time.monotonic()
        changed = "--set-string=logLevel=warning"
        helm("upgrade", RELEASE, CHART, *settings(), changed, "--wait", "--timeout=30m")
        print(f"every pod replaced after {time.monotonic() - begun_s:.0f} s")
        client.progress()
        assert not before & all_pods()
        print(f"{client.finish()} objects, all as the oracle says")


def map_status() -> dict[str, Any]:
    router = f"{RELEASE}-router:7070"
    command = ("sirocco", "map", "status", "--json", "--router", router)
    output: dict[str, Any] = json.loads(kubectl("exec", ClientPod.NAME, "--", *command))
    return output


@needs_prometheus
@pytest.mark.usefixtures("client_pod")
def test_a_map_built_by_the_job_of_the_chart(tmp_path: Path) -> None:
    with Client("past", f"{SEED}-past") as client:
        client.progress()
        saved = "until ls /archive/sirocco/checkpoints/* >/dev/null 2>&1; do sleep 1; done"
        kubectl("exec", deployment("evaluator"), "--", "sh", "-c", saved)
        client.finish()
    before = map_status()["version"]
    helm("upgrade", RELEASE, CHART, *settings(), *BUILD_MAP, "--wait", "--timeout=30m")
    questions = list(queries_of(ROOT / "charts/sirocco/dashboards/spark.json"))
    # No job fails here; the test of containers has one that does.
    shown = [one for one in questions if one.panel != "Time since the last failure"]
    with ApiProxy() as api, Prometheus(tmp_path, {}) as prometheus:
        pod = await_job_pod("build-map")
        prometheus.watch({pod: api.port_of(pod, 8080, "metrics")})
        prometheus.await_figures(shown, JOB_S)
        for question in shown:
            for labels, figure in prometheus.figures(question.expression):
                print(f"{question.panel}: {labels}: {figure:g}")
    kubectl("wait", "--for=condition=Complete", f"--timeout={JOB_S}s", job("build-map"))
    after = map_status()
    print(kubectl("logs", pod, "--container=spark"), kubectl("logs", pod, "--container=propose"))
    assert after["version"] > before
    with Client("after", f"{SEED}-after") as client:
        client.progress()
        print(f"{client.finish()} objects by the new map, all as the oracle says")


def output_before_its_end(service: str) -> str:
    """Returns the output of a service's pods in their former containers."""
    names = [one["metadata"]["name"] for one in pods(service)]
    return "".join(kubectl("logs", name, "--previous", check=False) for name in names)


@pytest.mark.usefixtures("client_pod")
def test_checkpoints_that_are_lost_are_missed_by_name_and_can_be_restored() -> None:
    def in_archive(script: str) -> None:
        kubectl("exec", deployment("router"), "--", "sh", "-c", f"cd /archive/sirocco && {script}")

    with Client("restored", f"{SEED}-restored") as client:
        client.progress()
        # No process remains that knows the content of the checkpoints, or writes new ones.
        kubectl("scale", deployment("evaluator"), "--replicas=0")
        selector = "--selector=app.kubernetes.io/component=evaluator"
        kubectl("wait", "--for=delete", "pod", selector, "--timeout=300s")
        in_archive("mv checkpoints/slots lost")
        kubectl("scale", deployment("evaluator"), "--replicas=2")
        deadline = time.monotonic() + LOST_S
        while "checkpoints/slots/" not in (reported := output_before_its_end("evaluator")):
            assert time.monotonic() < deadline, f"no blob is missed: {reported[-2000:]}"
            time.sleep(2.0)
        print(next(line for line in reported.splitlines() if "checkpoints/slots/" in line)[-300:])
        in_archive("mkdir -p checkpoints/slots && cp -r lost/. checkpoints/slots")
        restored_s = time.monotonic()
        await_rollout("evaluator")
        client.progress()
        print(f"restored: matching went on after {time.monotonic() - restored_s:.0f} s")
        print(f"{client.finish()} objects, all as the oracle says")


@pytest.mark.usefixtures("release")
def test_nothing_was_compiled_by_all_that() -> None:
    for service in SERVICES:
        find = "find $SIROCCO_KERNEL_CACHE -type f | head -3"
        assert kubectl("exec", deployment(service), "--", "sh", "-c", find) == ""
        linked = "find $SIROCCO_KERNEL_CACHE -type l | head -1"
        assert kubectl("exec", deployment(service), "--", "sh", "-c", linked)
