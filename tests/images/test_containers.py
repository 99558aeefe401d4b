"""The whole system from its images, in containers on one network, with Kafka and Redis.

As in a pod, no container has root's rights, and each can write only to /tmp and the archive. One
session publishes and one subscriber receives from outside, while an evaluator's container is killed
and another one starts in its place; the received matches have to be the oracle's, each exactly
once.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.charts.prometheus import Prometheus, needs_prometheus, queries_of
from tests.charts.rendering import CHART
from tests.end_to_end.under_load import Traffic
from tests.images.engine import (
    CONFINED,
    Network,
    await_true,
    build_images,
    campaign,
    docker,
    needs_engine,
    tag,
)

SEED = 20261121
SERVICES = {"coordinator": 1, "merger": 2, "evaluator": 2, "router": 2}

# Bounds of the test, not promises: two cores are shared with a broker, and beside other work all
# containers together have the share of one process.
START_S = 900.0
WAIT_S = 600.0
pytestmark = [pytest.mark.timeout(3600), needs_engine]

# Java unpacks its compressors there and loads them; a pod's emptyDir allows it, too.
JOB_TMP = "--tmpfs=/tmp:rw,exec,mode=1777"

# How long a finished job still serves its metrics.
LINGER_S = 60


def image(name: str = "sirocco") -> str:
    return f"{name}:{tag()}"


def environment(network: Network, host: str) -> dict[str, str]:
    return {
        "SIROCCO_KAFKA": "kafka:9092",
        "SIROCCO_REDIS": "redis://redis:6379/0",
        "SIROCCO_ARCHIVE": "/archive",
        "SIROCCO_HOST": network.address(host),
        "SIROCCO_GRPC_PORT": "7070",
        "SIROCCO_HTTP_PORT": "8080",
    }


def start(network: Network, host: str) -> None:
    """Starts the container of a service, NAME-NUMBER."""
    network.start(
        host,
        image(),
        ["python", "-m", f"sirocco.services.{host.partition('-')[0]}"],
        environment=environment(network, host),
        options=["--volume", f"{network.name}-archive:/archive"],
    )


def listens(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=1.0):
            return True
    except OSError:
        return False


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    build_images()
    with Network("sirocco-test") as made:
        made.start("redis", image("sirocco-dev-redis"))
        made.start("kafka", image("sirocco-dev-kafka"), options=["--volume=/data"])
        archive = f"{made.name}-archive:/archive"
        own = ["chown", "10001", "/archive"]
        docker("run", "--rm", "--user=0", f"--volume={archive}", image(), *own)
        for host, port in (("kafka", 9092), ("redis", 6379)):
            await_true(lambda h=host, p=port: listens(made.address(h), p), f"{host} listens", 120)
        hosts = [f"{one}-{n}" for one, count in SERVICES.items() for n in range(count)]
        for host in hosts:
            start(made, host)
        for host in hosts:
            made.await_http(host, "/readyz", START_S)
        yield made


def routers(network: Network) -> tuple[str, ...]:
    return tuple(f"{network.address(f'router-{n}')}:7070" for n in range(SERVICES["router"]))


def traffic_of(network: Network, name: str) -> Traffic:
    return Traffic(routers(network), name, f"{SEED}-{name}", wait_s=WAIT_S)


def test_the_image_is_confined_and_bare(network: Network) -> None:
    output = network.run(
        "evaluator-0",
        "sh",
        "-c",
        "id -u; touch /opt/sirocco/x 2>/dev/null && echo written; "
        "for one in cc gcc as ld pip pip3; do command -v $one; done; true",
    )
    assert output.split() == ["10001"]


def test_a_killed_evaluator_loses_and_doubles_nothing(network: Network) -> None:
    with traffic_of(network, "containers") as traffic:
        traffic.await_progress()
        network.kill("evaluator-0")
        print(f"evaluator-0 killed: matching resumed after {traffic.await_progress():.1f} s")
        start(network, "evaluator-0")
        ready_s = network.await_http("evaluator-0", "/readyz", START_S)
        print(f"another one was ready after {ready_s:.1f} s")
        traffic.await_progress()
        traffic.finish()
        print(f"{traffic.published} objects, all as the oracle says")


@campaign
def test_containers_that_are_replaced_in_order_lose_and_double_nothing(network: Network) -> None:
    with traffic_of(network, "replaced") as traffic:
        traffic.await_progress()
        for host in ("evaluator-1", "merger-1", "router-1"):
            begun_s = time.monotonic()
            network.stop(host)
            assert network.status(host) == 0, network.log(host)[-2000:]
            print(f"{host} ended in order after {time.monotonic() - begun_s:.1f} s")
            start(network, host)
            network.await_http(host, "/readyz", START_S)
            traffic.await_progress()
        traffic.finish()
        print(f"{traffic.published} objects, all as the oracle says")


def test_the_command_in_the_image_sees_the_cluster(network: Network) -> None:
    output = docker(
        "run",
        "--rm",
        f"--network={network.name}",
        *CONFINED,
        image(),
        "sirocco",
        "cluster",
        "--router",
        "router-0:7070",
    )
    assert "slot" in output


@campaign
def test_a_spark_job_out_of_its_image(tmp_path: Path) -> None:
    objects = tmp_path / "objects.jsonl"
    lines = [
        f'{{"id": {n}, "lon": {n % 360 - 180}, "lat": {n % 170 - 85}, "text": "fire road {n % 7}"}}'
        for n in range(2_000)
    ]
    objects.write_text("\n".join(lines) + "\n")
    tmp_path.chmod(0o777)
    docker(
        "run",
        "--rm",
        *CONFINED,
        JOB_TMP,
        f"--volume={tmp_path}:/data",
        image("sirocco-spark"),
        "workload_statistics.py",
        "--objects",
        "/data/objects.jsonl",
        "--out",
        "/data/statistics",
    )
    assert any((tmp_path / "statistics").iterdir())


def start_job(network: Network, host: str, *command: str) -> str:
    """Starts a Spark job as the chart does; returns the address of its metrics."""
    reported = {
        **environment(network, host),
        "SIROCCO_JOB_LINGER_S": str(LINGER_S),
        "SPARK_DRIVER_MEMORY": "1g",
        "SPARK_LOCAL_DIRS": "/scratch",
        "SIROCCO_KERNEL_CACHE": "/scratch/kernels",
    }
    volume = f"--volume={network.name}-archive:/archive"
    # All containers share the time of one process: the broker starts before a job, as on
    # Kubernetes.
    scratch = "--tmpfs=/scratch:rw,mode=1777"
    options = ["--restart=no", "--cpu-shares=128", JOB_TMP, scratch, volume]
    network.start(host, image("sirocco-spark"), command, environment=reported, options=options)
    return f"{network.address(host)}:8080"


@campaign
@needs_prometheus
def test_jobs_over_the_archive_fill_their_dashboard(network: Network, tmp_path: Path) -> None:
    with traffic_of(network, "past") as traffic:
        traffic.await_progress()
        saved = ("sh", "-c", "ls /archive/sirocco/checkpoints 2>/dev/null | head -1")
        await_true(lambda: bool(network.run("evaluator-0", *saved)), "a checkpoint", WAIT_S)
        traffic.finish()
    past = "archive:/archive/sirocco"
    out = ("--out", "/scratch/proposal")
    queries = ("--queries", "kafka:kafka:9092/sirocco")
    jobs = {
        "build-map": ("build_map.py", "--objects", past, *queries, *out),
        # There is no such archive.
        "compact": ("compact.py", "--archive", "/archive/nothing", "--out", "/scratch/compacted"),
    }
    targets = {host: start_job(network, host, *command) for host, command in jobs.items()}
    questions = list(queries_of(CHART / "dashboards" / "spark.json"))
    with Prometheus(tmp_path, targets) as prometheus:
        try:
            prometheus.await_figures(questions, WAIT_S, lambda: network.runs("build-map"))
        except AssertionError as silent:
            logs = "\n".join(network.log(host)[-2000:] for host in jobs)
            raise AssertionError(f"no figures for\n{silent}\n{logs}") from None
        for question in questions:
            for labels, figure in prometheus.figures(question.expression):
                print(f"{question.panel}: {labels}: {figure:g}")
        ended = {
            (labels["spark_job"], labels["outcome"])
            for labels, _ in prometheus.figures(
                "last_over_time(sirocco_spark_finished_timestamp_seconds[1h])"
            )
        }
        reported = prometheus.figures("last_over_time(sirocco_spark_objects[1h])")
    assert ended == {("build_map", "done"), ("compact", "refused")}
    for host, status in {"build-map": 0, "compact": 2}.items():
        docker("wait", f"{network.name}-{host}")
        assert network.status(host) == status, network.log(host)[-3000:]
    # Here, stdout and stderr of a process are interleaved in no fixed order.
    output = [line for line in network.log("build-map").splitlines() if line.startswith("{")]
    summary = json.loads(output[-1])
    print(summary)
    assert [figure for _, figure in reported] == [summary["objects"]]
    assert summary["objects"] > 0
    assert summary["refused_objects"]["count"] == 0


def test_nothing_was_compiled_by_all_that(network: Network) -> None:
    for host in (f"{one}-{n}" for one, count in SERVICES.items() for n in range(count)):
        compiled = network.run(host, "find", "/tmp/sirocco-kernels", "-type", "f").splitlines()
        assert not compiled, f"{host} has compiled {compiled}"
        assert network.run(host, "find", "/tmp/sirocco-kernels", "-type", "l")
